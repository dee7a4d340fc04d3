//nolint:unused // Only builds with the tag cuda set the fields.
package kernels

import "reel.internal/reel/kernels/device"

// tagsArgs mirrors Tags of ptx/tagged.cuh.
type tagsArgs struct {
	pass, in, out uint64
	taken, given  int32
	scale         float32
	_             int32
}

// rankTagsArgs mirrors RankTags, which has Tags as its base.
type rankTagsArgs struct {
	tags         tagsArgs
	away         [device.MaxRanks - 1]int64
	peers, apart int32
	last, _      int32
}

// rankArgs mirrors RankArgs of gemm/tagged.cuh.
type rankArgs[T any] struct {
	op   T
	tags rankTagsArgs
}

// attendRankArgs mirrors AttendRankArgs.
type attendRankArgs struct {
	deferred attendDeferredArgs
	tags     rankTagsArgs
}

// rankRouteArgs mirrors RankRouteArgs of gemm/route.cuh.
type rankRouteArgs struct {
	of   routeArgs
	tags rankTagsArgs
}

// rankGatesArgs mirrors RankGatesArgs of experts.cu.
type rankGatesArgs struct {
	op     expertGateUpArgs
	tags   rankTagsArgs
	choice choiceArgs
}

// rankDownArgs mirrors RankDownArgs of experts.cu.
type rankDownArgs struct {
	op         expertDownArgs
	tags       rankTagsArgs
	choice     uint64
	experts, _ int32
}

// taggedArgs mirrors TaggedArgs of gemm/tagged.cuh.
type taggedArgs[T any] struct {
	op   T
	tags tagsArgs
}

// attendTaggedArgs mirrors AttendTaggedArgs, which has attendDeferredArgs as its base.
type attendTaggedArgs struct {
	deferred attendDeferredArgs
	tags     tagsArgs
}

// embedTaggedArgs mirrors EmbedTaggedArgs of embed.cu.
type embedTaggedArgs struct {
	of   embedArgs
	tags tagsArgs
}

// taggedRouteArgs mirrors TaggedRouteArgs of gemm/route.cuh.
type taggedRouteArgs struct {
	of   routeArgs
	tags tagsArgs
}

// choiceArgs mirrors ChoiceArgs of gemm/experts_tagged.cuh.
type choiceArgs struct {
	of             routeArgs
	logits, choice uint64
}

// taggedGatesArgs mirrors TaggedGatesArgs of gemm/experts_tagged.cuh.
type taggedGatesArgs[T any] struct {
	op     T
	tags   tagsArgs
	choice choiceArgs
}

// taggedDownArgs mirrors TaggedDownArgs of gemm/experts_tagged.cuh.
type taggedDownArgs[T any] struct {
	op         T
	tags       tagsArgs
	choice     uint64
	experts, _ int32
}
