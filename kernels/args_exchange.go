//nolint:unused // Only builds with the tag cuda set the fields.
package kernels

import "reel.internal/reel/kernels/device"

// exchangeArgs mirrors ExchangeArgs of exchange.cu.
type exchangeArgs struct {
	part, x, bias                      uint64
	all, flags                         [device.MaxRanks]uint64 // of each rank
	epochs, progress                   uint64
	rows, width, partCols, ranks, rank int32
	stride                             int32
}

// packetsArgs mirrors Packets of ptx/packets.cuh.
type packetsArgs struct {
	inbox           [device.MaxRanks]uint64 // of each rank
	count, progress uint64
	ranks, rank     int32
	ahead, _        int32
}

// spreadTo mirrors Spread of ptx/packets.cuh.
type spreadTo struct {
	packets                      packetsArgs
	all, x, bias                 uint64
	rows, width, partCols, taken int32
}

// exchangePacketsArgs mirrors ExchangePacketsArgs of exchange.cu.
type exchangePacketsArgs struct {
	part      uint64
	to        spreadTo
	stride, _ int32
}

// roundedParts mirrors RoundedParts of exchange.cu.
type roundedParts struct{ rows, squares, squaresAt, _ int32 }

// exchangeRoundedArgs mirrors ExchangeRoundedArgs of exchange.cu.
type exchangeRoundedArgs struct {
	rounded, flags   [device.MaxRanks]uint64 // of each rank
	epochs, progress uint64
	parts            roundedParts
	ranks, rank      int32
}

// roundedPacketsArgs mirrors RoundedPacketsArgs of exchange.cu.
type roundedPacketsArgs struct {
	rounded      uint64
	packets      packetsArgs
	parts        roundedParts
	first, pairs int32
}

// attendSpreadArgs mirrors AttendSpreadArgs of attend.cu.
type attendSpreadArgs[T any] struct {
	of T
	to spreadTo
}

// spreadArgs mirrors SpreadArgs of gemm/spread.cuh.
type spreadArgs[T any] struct {
	op                       T
	to                       spreadTo
	receivers, own, after, _ int32
}
