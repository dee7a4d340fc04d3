//nolint:unused // Only builds with the tag cuda set the fields.
package kernels

// Arguments of the kernels of routers and experts.

// routeArgs mirrors RouteArgs of gemm/route.cuh.
type routeArgs struct {
	x, norm, rows, router, bias, choice uint64
	logits, arrivals, ids, weights      uint64
	t, hidden, experts, used            int32
	groups, groupsUsed                  int32
	bestTwo, scoring                    int32
	normalise, byScore                  int32
	scale, eps                          float32
	count, expert, place, row           uint64
	scales                              uint64
}

// groupArgs mirrors GroupArgs of group.cu.
type groupArgs struct {
	ids, rows, count, expert, place, row uint64
	t, used, segments, each              int32
}

// chosenArgs mirrors ChosenArgs of gemm/experts.cuh.
type chosenArgs struct {
	weights, count, expert, place, row uint64
	segments, places                   int32
}

// expertGateUpArgs mirrors ExpertGateUpArgs of experts.cu.
type expertGateUpArgs struct {
	gate, up, gateBias, upBias uint64
	in                         activations
	out                        uint64
	chosen                     chosenArgs
	linear, limit              float32
	inner                      int32
	cubic                      float32
}

// expertDownArgs mirrors ExpertDownArgs of experts.cu.
type expertDownArgs struct {
	w, bias      uint64
	in           activations
	results, x   uint64
	chosen       chosenArgs
	hidden, used int32
	stores, _    int32
}

// chooseArgs mirrors ChooseArgs of group.cu.
type chooseArgs struct {
	route routeArgs
	group groupArgs
}

// groupPlacesArgs mirrors GroupPlacesArgs of experts_prefill.cu.
type groupPlacesArgs struct {
	ids, count, tiles, place, slot uint64
	places, most                   int32
}

// roundPlacesArgs mirrors RoundPlacesArgs of experts_prefill.cu.
type roundPlacesArgs struct {
	in                activations
	out, scales, slot uint64
	slots, used       int32
}

// placesArgs mirrors PlacesArgs of gemm/grouped.cuh.
type placesArgs struct {
	count, tiles, place, slot uint64
	slots, _                  int32
}

// groupedArgs mirrors GroupedArgs of gemm/grouped.cuh. T mirrors the op's own arguments.
type groupedArgs[T any] struct {
	op                   T
	rows, scales         uint64
	places               placesArgs
	kBlocks, outputTiles int32
}

// groupedGateUpArgs mirrors GroupedGateUpArgs of experts_prefill.cu.
type groupedGateUpArgs struct {
	gate, up, gateBias, upBias uint64
	rounded, out               uint64
	linear, limit              float32
	inner, slots               int32
	cubic                      float32
	_                          int32
}

// groupedDownArgs mirrors GroupedDownArgs of experts_prefill.cu.
type groupedDownArgs struct {
	w, bias, weights, results uint64
	hidden, _                 int32
}

// expertSumArgs mirrors ExpertSumArgs of experts.cu.
type expertSumArgs struct {
	results, rows, x uint64
	cols, used       int32
	stores, _        int32
}

// expertSumSpreadArgs mirrors ExpertSumSpreadArgs of experts.cu.
type expertSumSpreadArgs struct {
	sum expertSumArgs
	to  spreadTo
}
