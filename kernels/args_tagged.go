//nolint:unused // Only builds with the tag cuda set the fields.
package kernels

// tagsArgs mirrors Tags of ptx/tagged.cuh.
type tagsArgs struct {
	pass, in, out uint64
	taken, given  int32
	scale         float32
	_             int32
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
