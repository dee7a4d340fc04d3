//nolint:unused // Only builds with the tag cuda set the fields.
package kernels

// Launches pass these structs to kernels by value. Each mirrors a struct of C++ field by field;
// addresses are uint64. args_test.go and the compiler of the kernels hold both to one layout.

// activations mirrors Activations: n input rows of cols columns. Row t is x[rows[t]], or
// x[t] if rows is null. norm is null for a product without rmsnorm.
type activations struct {
	x, norm, rows uint64
	cols, n       int32
	eps           float32
	_             int32
}

// roundedInput mirrors RoundedInput: input rows that are rounded. squares is the number of partial
// sums of squares per row in scales, or 0 if scales holds the rows' finished scales.
type roundedInput struct {
	rows, scales    uint64
	tokens, squares int32
}

// handoverArgs mirrors Handover: the destination of a fused epilogue. rows is null if there is none.
type handoverArgs struct {
	rows, norm, squares uint64
	tokens              int32
	_                   int32
}

// slicePlan mirrors SlicePlan: the work slices of a stream-K GEMM.
type slicePlan struct {
	slices, tokenTiles, kBlocks, perTile int32
	inverse                              uint32                 // 2³²/perTile, rounded up; 0 if perTile is 0
	tokens                               int32                  // of a token tile
	firstUnit, endUnit                   int32                  // of the op's units
	rounds                               int32                  // of a block
	starts                               [maxSliceStarts]uint32 // output tile<<16 | K block
}

// roundArgs mirrors RoundArgs.
type roundArgs struct {
	in          activations
	out, scales uint64
	tokens      int32
	_           int32
}

// roundCodesArgs mirrors RoundCodesArgs of round.cu.
type roundCodesArgs struct {
	in                 activations
	rows, scales, sums uint64
	tokens             int32
	_                  int32
}

// wgmmaArgs mirrors WgmmaArgs.
type wgmmaArgs[T any] struct {
	op      T
	rounded roundedInput
}

// streamKArgs mirrors StreamKArgs.
type streamKArgs[T any] struct {
	op                 T
	rounded            roundedInput
	handover           handoverArgs
	partials, arrivals uint64
	plan               slicePlan
}

// manyArgs mirrors ManyArgs.
type manyArgs[T any] struct {
	op             T
	rounded        roundedInput
	handover       handoverArgs
	sums, arrivals uint64
	plan           slicePlan
	ahead          aheadArgs
}

// mixedArgs mirrors MixedArgs.
type mixedArgs[T any] struct {
	prompts   streamKArgs[T]
	generated manyArgs[T]
}

// aheadArgs mirrors Ahead of gemm/ahead.cuh.
type aheadArgs struct {
	at           [3]uint64
	apart, bytes [3]uint32
}

// codesHandoverArgs mirrors CodesHandover: where a product over quantised weights leaves its rows for the next. rows is
// null if it does not.
type codesHandoverArgs struct {
	rows, sums, scales, norm uint64
	columns                  int32
	n, atOnce                int16
}

// codesArgs mirrors CodesArgs.
type codesArgs[T any] struct {
	op                           T
	rows, scales, sums           uint64
	handover                     codesHandoverArgs
	first, units, atOnce, stages int32
}

// qkvArgs mirrors QKVArgs of qkv.cu.
type qkvArgs struct {
	q, k, v                                uint64
	in                                     activations
	rope, slot, position, table, pool, out uint64
	heads, kvHeads, dim, pages             int32
	layer, layers, pageTokens, kvType      int32
}

// qkPostArgs mirrors QKPostArgs of attention/qk_post.cuh.
type qkPostArgs struct {
	q, kv, bias, norms, rope, slot, position, table, pool uint64
	t, heads, kvHeads, dim, pages                         int32
	layer, layers, pageTokens, kvType                     int32
	eps                                                   float32
	valueNorms                                            int32
}

// perLayerGateArgs mirrors PerLayerGateArgs of per_layer.cu.
type perLayerGateArgs struct {
	x, inputs, rows      uint64
	pitch                int64
	cols                 int32
	scale, linear, cubic float32
}

// attendArgs mirrors AttendArgs of attention/softmax.cuh.
type attendArgs struct {
	q, pool, out, partial, arrived        uint64
	slot, position, blockTable            uint64
	t, layer, layers, heads, kvHeads, dim int32
	pages, pageShift, splits              int32
	scale                                 float32
	window, join, visible, f16            int32
	rounded                               uint64
	tokens, group, afterQKV, shareMerge   int32
	parts, beside                         int32
	ahead                                 aheadArgs
}

// attendLogits mirrors AttendLogits.
type attendLogits struct {
	sinks      uint64
	cap, steep float32
}

// attendLogitsArgs mirrors AttendLogitsArgs.
type attendLogitsArgs[T any] struct {
	of     T
	logits attendLogits
}

// attendHandingArgs mirrors AttendHandingArgs of attention/hand_codes.cuh.
type attendHandingArgs[T any] struct {
	of T
	to codesHandoverArgs
}

// attendLatentArgs mirrors AttendLatentArgs of attention/latent.cuh.
type attendLatentArgs struct {
	q, pool, out, partial, arrived uint64
	slot, position, blockTable     uint64
	pageBytes, layerStart          int64
	t, heads, dim, values          int32
	pages, pageShift               int32
	splits, visible                int32
	logits                         attendLogits
	scale                          float32
	rows, stages, shareMerge       int32
	group, earliest                int32
	valuesStart                    int64
	together, _                    int32
}

// latentArgs mirrors LatentArgs of latent.cu.
type latentArgs struct {
	q, c, norm, table          uint64
	slot, position, blockTable uint64
	pool, out                  uint64
	pageBytes, layerStart      int64
	heads, nope, rope, latent  int32
	pages, pageTokens          int32
	eps                        float32
	_                          int32
}

// headProductArgs mirrors HeadProductArgs of latent.cu.
type headProductArgs struct {
	w, in, out           uint64
	t, heads, rows, cols int32
	inStride, outStride  int32
}

// attendDeferredArgs mirrors AttendDeferredArgs, which has attend as its base.
type attendDeferredArgs struct {
	attend attendArgs
	post   qkPostArgs
}

// attendFromArgs mirrors AttendFromArgs, which has attend as its base.
type attendFromArgs struct {
	attend      attendArgs
	earliest, _ int32
}

// projectionArgs mirrors ProjectionArgs of projection.cu.
type projectionArgs struct {
	w            uint64
	in           activations
	x, bias      uint64
	rows, stores int32
	stride, _    int32
}

// beginArgs mirrors BeginArgs of projection.cu.
type beginArgs struct {
	x, bias      uint64
	cols, stores int32
}

// gateUpArgs mirrors GateUpArgs of gateup.cu.
type gateUpArgs struct {
	gate, up      uint64
	in            activations
	out           uint64
	linear, cubic float32
	inner         int32
	scale         float32
}

// headArgs mirrors HeadArgs of head.cu.
type headArgs struct {
	w      uint64
	in     activations
	logits uint64
	vocab  int32
	_      int32
}

// softcapArgs mirrors SoftcapArgs of softcap.cu.
type softcapArgs struct {
	logits, sample uint64
	vocab          int32
	limit          float32
}

// addNormArgs mirrors AddNormArgs of addnorm.cu.
type addNormArgs struct {
	branch, norm, rows, x uint64
	cols                  int32
	eps, scale            float32
	stores                int32
}

// widthNormsArgs mirrors WidthNormsArgs of widthnorms.cu.
type widthNormsArgs struct {
	q, kv, norms         uint64
	queries, keys, parts int32
	eps                  float32
}

// gatherArgs mirrors GatherArgs of gather.cu.
type gatherArgs struct {
	x, sample, out, index uint64
	cols, _               int32
}

// embedArgs mirrors EmbedArgs of embed.cu.
type embedArgs struct {
	table, token, x uint64
	vocab, hidden   int32
	scale           float32
	_               int32
}

// stageArgs mirrors StageArgs of stage.cu.
type stageArgs struct {
	ring, counter                              uint64
	slots                                      slotArgs
	slot, position, token, sample, number      uint64
	ringSlots, words, sampleAt, initAt, pageAt int32
	count, pages, context, t, n                int32
}

// restoreArgs mirrors RestoreArgs of restore.cu.
type restoreArgs struct {
	staged                                   uint64
	slots                                    slotArgs
	slot, pages, tokens, tablePages, context int32
	pad                                      int32
}

// slotArgs are the addresses in Slots, in the order of StageArgs and RestoreArgs, which have no struct for them.
type slotArgs struct {
	blockTable, length, token, history, params uint64
}

// sampleArgs mirrors SampleArgs of sample.cu.
type sampleArgs struct {
	logits, sample, slot, position, number, history, params, mask, bias, edited, token, results uint64
	vocab, context, ringSlots, maxSamples, queries, masks                                       int32
}

// vectorArgs mirrors VectorArgs of vector.cu.
type vectorArgs struct {
	x, index, norm, sample, slot, number, params, results, vectors uint64
	cols, ringSlots, maxSamples                                    int32
	eps                                                            float32
}

// acceptArgs mirrors AcceptArgs of accept.cu.
type acceptArgs struct {
	slot, position, token, sample, drawn, number uint64
	last, length, results                        uint64
	t, queries, ringSlots, maxSamples            int32
}

// lookupArgs mirrors LookupArgs of lookup.cu.
type lookupArgs struct {
	slot, position, token, history, masked uint64
	queries, context, trash, stride        int32
}

// givenArgs mirrors GivenArgs of given.cu.
type givenArgs struct {
	slot, position, tokens, token, history, masked uint64
	t, queries, context, trash, stride, _          int32
}

// packArgs mirrors PackArgs of pack.cu.
type packArgs struct {
	src, dst   uint64
	rows, cols int32
}

// packCodesArgs mirrors PackCodesArgs of pack_codes.cu.
type packCodesArgs struct {
	src, dst   uint64
	rows, cols int32
}

// copyPageArgs mirrors CopyPageArgs of copypage.cu.
type copyPageArgs struct {
	from, to uint64
	words    int64
}

// fillArgs mirrors FillArgs of fill.cu.
type fillArgs struct {
	data  uint64
	n     int64
	value uint32
	pad   uint32
}

// readArgs mirrors ReadArgs of read.cu.
type readArgs struct {
	data, out uint64
	n         int64
}
