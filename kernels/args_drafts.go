//nolint:unused // Only builds with the tag cuda set the fields.
package kernels

// draftRowsArgs mirrors DraftRowsArgs of draftrows.cu.
type draftRowsArgs struct {
	ofSlot, ofPosition, ofToken, ofSample        uint64
	history, params                              uint64
	slot, position, token, sample                uint64
	rows, queries, draft, vocab, context, single int32
}

// proposeArgs mirrors ProposeArgs of propose.cu.
type proposeArgs struct {
	logits, tokens, slot, position, token       uint64
	history, masked                             uint64
	queries, draft, cols, vocab, context, trash int32
	stride, _                                   int32
}

// captureArgs mirrors CaptureArgs of capture.cu.
type captureArgs struct {
	x, norm, features, zero uint64
	cols, width, zeroCols   int32
	eps                     float32
}

// joinArgs mirrors JoinArgs of join.cu.
type joinArgs struct {
	embedded, features, norm, output, x, out uint64
	slot, position, blockTable, kept         uint64
	pageStride                               int64
	cols, pages, pageTokens                  int32
	own, normed                              int32
	eps                                      float32
}

// keepArgs mirrors KeepArgs of keep.cu.
type keepArgs struct {
	x, slot, position, length, blockTable, kept uint64
	pageStride                                  int64
	cols, pages, pageTokens, trash              int32
}

// recentArgs mirrors RecentArgs of recent.cu.
type recentArgs struct {
	slot, position, blockTable            uint64
	view, viewSlot, viewPosition          uint64
	queries, pages, viewPages, pageTokens int32
	first, window, trash, viewTrash       int32
}
