"""A chat whose functions are called for it. docs/tools.md tells more."""

from typing import Any, Literal

from mtlqwen import ChatResult, Engine, tool

SHOP: dict[Any, Any] = {"orange umbrella": 44, "green lamp": 30}


@tool
def search_products(query: str, max_price: float, sort: Literal["price", "name"] = "price") -> Any:
    """Search the shop for products.

    Args:
        query: Search words
        max_price: Highest price
        sort: what the list is sorted by
    """
    if max_price <= 0:
        raise ValueError("the price is above 0")  # the model is told, and can try again
    rows = [{"name": name, "price": price} for name, price in SHOP.items() if price <= max_price]
    return sorted((row for row in rows if query in row["name"]), key=lambda row: row[sort])[0]


messages = [
    {"role": "user", "content": "Find an orange umbrella for less than 45 dollars."},
]
with Engine("tiny") as engine:
    stream = engine.stream(messages, tools=[search_products], run_tools=True, thinking=False)
    for piece in stream:
        if piece.tool_call:
            print(f"calls {piece.tool_call.name}({piece.tool_call.arguments})")
        elif piece.kind == "tool_result":
            print(f"which returns {piece}")
        elif piece.kind == "text":
            print(piece, end="", flush=True)
    print()
    result = stream.result()
    assert isinstance(result, ChatResult)
    messages += result.messages  # calls, results and the answer: all to go on with
    print([message["role"] for message in messages])
