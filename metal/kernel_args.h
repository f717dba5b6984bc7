// The words that C++ and MSL share: argument structs and function constants. Includes nothing of the project.
//
// Every kernel takes its buffers in the order out, in, weights, metadata, then `constant XArgs&`, then `constant Pass&`.
// Args are written once, when the model is loaded; all that changes from pass to pass stands in Pass and the arrays beside it.
#pragma once
#ifdef __METAL_VERSION__
#define MTLQWEN_UINT uint
#define MTLQWEN_INT int
#define MTLQWEN_ULONG ulong
#else
#include <stdint.h>
#define MTLQWEN_UINT uint32_t
#define MTLQWEN_INT int32_t
#define MTLQWEN_ULONG uint64_t
namespace mtlqwen {
#endif

// Where an array's element would stand: there is none.
#define MTLQWEN_NO_INDEX 0xFFFFFFFFu

// In the place of a chosen id: nothing may be chosen; a logit is not finite.
#define MTLQWEN_NO_CHOICE -1
#define MTLQWEN_SPOILT_LOGITS -2

// The logit of an id that edits forbid: the lowest finite float, for infinite ones are spoilt.
#define MTLQWEN_FORBIDDEN -3.402823466e38f

// Formats of weights that share their kernels, by their numbers in GGUF: the value of a function constant.
enum PackedFormat : MTLQWEN_UINT {
  kPackedQ4_0 = 2,
  kPackedQ4_1 = 3,
  kPackedQ5_0 = 6,
  kPackedQ5_1 = 7,
  kPackedQ2_K = 10,
  kPackedQ3_K = 11,
  kPackedQ4_K = 12,
  kPackedQ5_K = 13,
  kPackedQ6_K = 14,
  kPackedIQ2_XXS = 16,
  kPackedIQ2_XS = 17,
  kPackedIQ3_XXS = 18,
  kPackedIQ1_S = 19,
  kPackedIQ4_NL = 20,
  kPackedIQ3_S = 21,
  kPackedIQ2_S = 22,
  kPackedIQ4_XS = 23,
  kPackedIQ1_M = 29,
  kPackedMXFP4 = 39,
  kPackedNVFP4 = 40,
};

// Counts of one pass. A second Pass, with rows = n_logit_rows, serves the kernels behind gather_rows.
struct Pass {
  MTLQWEN_UINT rows;              // token rows
  MTLQWEN_UINT n_queries;         // sequences that own them
  MTLQWEN_UINT n_logit_rows;      // rows that get logits
  MTLQWEN_UINT n_splits;          // attention splits of the longest context in the pass
  MTLQWEN_UINT blocks_per_split;  // 128-key blocks of one split
  MTLQWEN_UINT n_writes;          // GDN states that the pass keeps, of all queries
  MTLQWEN_UINT reserved[2];
};

// One sequence's rows in the pass. The kernels find it by row_query[row].
struct QueryArgs {
  MTLQWEN_UINT first_row;
  MTLQWEN_UINT count;
  MTLQWEN_UINT kv_valid;  // absolute position of the first row
  MTLQWEN_UINT slot;
  MTLQWEN_UINT bank;         // GDN bank to read; other queries may read it, too
  MTLQWEN_UINT first_write;  // its states are writes[first_write .. first_write + n_writes)
  MTLQWEN_UINT n_writes;    // 0: a draft is verified; its rows go to the tape, and no state is kept
  MTLQWEN_UINT first_tape;  // row of the tape for its first row
};

// The GDN state after the query's first `rows` rows goes to `bank`, which no query of the pass reads.
// Those of one query ascend in rows, each of another row, and the last has all rows of the query.
struct StateWriteArgs {
  MTLQWEN_UINT query;
  MTLQWEN_UINT rows;
  MTLQWEN_UINT bank;
  MTLQWEN_UINT reserved;
};

// The check of one query's draft. Its rows are the anchor and `width` proposals; logit row first_logit + i is what the
// target says behind row i. accepted: the proposals that equal what the target says in their place, up to the first that
// does not, or that the target ends with. Those of taped queries stand before the others.
struct VerifyArgs {
  MTLQWEN_UINT query;
  MTLQWEN_UINT first_logit;
  MTLQWEN_UINT width;
  MTLQWEN_UINT bank;        // of a taped query: for the state after 1 + accepted rows
  MTLQWEN_UINT first_stop;  // its ids that end a text are stops[first_stop .. first_stop + n_stops)
  MTLQWEN_UINT n_stops;
  MTLQWEN_UINT reserved[2];
};

// How one logit row is sampled.
struct SampleArgs {
  float temperature;  // 0: greedy
  MTLQWEN_UINT seed_low;
  MTLQWEN_UINT seed_high;
  MTLQWEN_UINT position;      // absolute position of the token to be chosen
  MTLQWEN_UINT sample_index;  // which of n continuations
  MTLQWEN_UINT filter;        // its FilterArgs and its Kept, or MTLQWEN_NO_INDEX
  MTLQWEN_UINT mask;          // its mask, of bits set where ids are allowed, or MTLQWEN_NO_INDEX
  MTLQWEN_UINT reserved;
};

// What stands between the raw logits of a row and its sample: penalties, biases, forbidden ids.
// Tokens that a draft has before the row are input_ids[first_input .. first_input + n_drafted).
struct EditArgs {
  MTLQWEN_UINT row;          // logit row
  MTLQWEN_UINT first_entry;  // its TokenEdits, ascending ids
  MTLQWEN_UINT n_entries;
  MTLQWEN_UINT first_input;
  MTLQWEN_UINT n_drafted;
  MTLQWEN_UINT first_saved;  // n_entries + n_drafted raw logits, to be put back
  MTLQWEN_UINT first_tail;   // the request's last tokens, for words of several
  MTLQWEN_UINT n_tail;
  float presence;
  float frequency;
  float repetition;
  MTLQWEN_UINT forbid_stops;  // not 0: entries that end a text are forbidden
  MTLQWEN_UINT reserved[4];
};

// One id whose logit changes.
struct TokenEdit {
  MTLQWEN_UINT id;
  MTLQWEN_UINT count;       // how often it was generated, this draft left out
  float bias;               // -infinity forbids it
  MTLQWEN_UINT first_word;  // bad words that end with it
  MTLQWEN_UINT n_words;
  MTLQWEN_UINT is_stop;
};

// The tokens of a bad word before its last one.
struct BadWord {
  MTLQWEN_UINT first;  // in word_tokens
  MTLQWEN_UINT n;
};

// Which of a row's ids may be chosen at all.
struct FilterArgs {
  MTLQWEN_UINT row;    // logit row
  MTLQWEN_UINT top_k;  // 0: all
  float top_p;         // 1: all
  float min_p;         // 0: all
};

// The outcome: ids with a logit above `lowest`, and of those equal to it the ones up to last_id.
struct Kept {
  float lowest;
  MTLQWEN_UINT last_id;
};

// A row whose chosen id is wanted with its logarithm of probability, and the likeliest others.
struct LogprobArgs {
  MTLQWEN_UINT row;  // logit row
  MTLQWEN_UINT n_top;
  MTLQWEN_UINT first_top;  // its first TokenLogprob
  MTLQWEN_INT told;        // the id that is meant; MTLQWEN_NO_CHOICE: the one that was sampled
};

struct TokenLogprob {
  MTLQWEN_INT id;  // -1: nothing was chosen
  float logprob;
};

struct EmbedArgs {
  MTLQWEN_UINT dim;
  MTLQWEN_UINT n_tokens;  // rows of the table
};

// Places of a model, in the order of a pass: what may be the first to give a row a number that is not finite. 0: the embedding;
// 1 + 2 i, 2 + 2 i: the mixer of layer i, and its MLP. MTLQWEN_NO_INDEX: nobody is told (a drafter).
struct NormArgs {
  MTLQWEN_UINT dim;
  float eps;
  MTLQWEN_UINT place;  // that gave the rows
  MTLQWEN_UINT reserved;
};

// out[row][n] (+)= sum_k in[row][k] * weight[n][k]
struct LinearArgs {
  MTLQWEN_UINT k;
  MTLQWEN_UINT n;
};

struct AttentionArgs {
  MTLQWEN_UINT n_heads;
  MTLQWEN_UINT n_kv_heads;
  MTLQWEN_UINT head_dim;
  MTLQWEN_UINT rotary_dim;   // leading dims that rotate, half-split pairs
  MTLQWEN_UINT slot_tokens;  // virtual token positions reserved for each slot in a plane
  float eps;
  float scale;                // head_dim ^ -0.5
  MTLQWEN_UINT token_halves;  // from one position of a plane to the next
  MTLQWEN_UINT first_key;     // nobody sees positions before it
  MTLQWEN_UINT window;        // keys that far from a row, and farther, are not seen; 0: all are
  MTLQWEN_UINT causal;  // a row sees the positions up to its own; 0: all rows of its query, too
  MTLQWEN_UINT gated;   // each head's query is followed by its gate; 0: there are no gates
  MTLQWEN_UINT place;   // the layer's mixer, see NormArgs
  MTLQWEN_UINT reserved[3];
};

// One GDN layer's place in a bank: bank_base = banks + bank * bank_floats; state then conv at the offsets.
// A tape row has what a verified row did to the layer, in floats: its channels of qkv before the convolution, its k heads
// behind it, the delta of each value of each v head, the decay of each v head.
struct GdnArgs {
  MTLQWEN_UINT n_k_heads;
  MTLQWEN_UINT n_v_heads;
  MTLQWEN_UINT head_dim;       // of keys and of values
  MTLQWEN_UINT k_head_tiled;   // k head of vh: 0 vh / (n_v_heads / n_k_heads), 1 vh % n_k_heads
  MTLQWEN_ULONG bank_floats;   // floats from one bank to the next
  MTLQWEN_ULONG state_offset;  // floats; (n_v_heads, head_dim of v, head_dim of k)
  MTLQWEN_ULONG conv_offset;   // floats; (3, channels), oldest row first, before the activation
  float eps;
  MTLQWEN_UINT chunk_rows;  // queries with as many rows are gdn_chunk's, the others gdn_recurrent's
  MTLQWEN_ULONG tape_row_floats;  // from one row of the layer's tape to the next
};

// All GDN layers of a model, each as far from the one before it as the next is from it.
struct GdnReplayArgs {
  GdnArgs layer;               // the first
  MTLQWEN_ULONG state_stride;  // floats from one layer's state to the next, in a bank
  MTLQWEN_ULONG conv_stride;   // the same of the conv states
  MTLQWEN_ULONG tape_stride;   // floats from one layer's tape to the next
  MTLQWEN_UINT n_layers;
  MTLQWEN_UINT reserved;
};

struct RowsArgs {
  MTLQWEN_UINT dim;
};

// Columns `first` .. `first` + `dim` - 1 of rows that are `stride` columns wide.
struct PlaceArgs {
  MTLQWEN_UINT dim;
  MTLQWEN_UINT stride;
  MTLQWEN_UINT first;
  MTLQWEN_UINT reserved;
};

// The seed of a bank: what a drafter reads of the token before the state's next one.
struct SeedArgs {
  MTLQWEN_UINT dim;
  MTLQWEN_UINT reserved;
  MTLQWEN_ULONG bank_floats;  // floats from one bank to the next
  MTLQWEN_ULONG seed_offset;  // floats; (dim)
};

struct SampleScanArgs {
  MTLQWEN_UINT vocab;    // stride of the logits
  MTLQWEN_UINT n_valid;  // ids at or past it are never chosen
  MTLQWEN_UINT chunk;    // ids of one threadgroup
  MTLQWEN_UINT n_chunks;
  MTLQWEN_UINT mask_words;  // of one mask, a multiple of 4
  MTLQWEN_UINT reserved;
};

// The best id of one chunk of the vocabulary.
struct Candidate {
  float score;
  MTLQWEN_UINT id;
};

static_assert(sizeof(Pass) == 32, "Pass is shared with the kernels");
static_assert(sizeof(QueryArgs) == 32, "QueryArgs is shared with the kernels");
static_assert(sizeof(StateWriteArgs) == 16, "StateWriteArgs is shared with the kernels");
static_assert(sizeof(VerifyArgs) == 32, "VerifyArgs is shared with the kernels");
static_assert(sizeof(AttentionArgs) == 64, "AttentionArgs is shared with the kernels");
static_assert(sizeof(SampleArgs) == 32, "SampleArgs is shared with the kernels");
static_assert(sizeof(EditArgs) == 64, "EditArgs is shared with the kernels");
static_assert(sizeof(TokenEdit) == 24, "TokenEdit is shared with the kernels");
static_assert(sizeof(GdnArgs) == 56, "GdnArgs is shared with the kernels");
static_assert(sizeof(GdnReplayArgs) == 88, "GdnReplayArgs is shared with the kernels");
static_assert(sizeof(SeedArgs) == 24, "SeedArgs is shared with the kernels");

#ifndef __METAL_VERSION__
}  // namespace mtlqwen
#endif
