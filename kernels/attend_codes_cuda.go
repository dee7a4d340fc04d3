//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// codesHandover returns where o leaves its results for a product over quantised weights, or zeros if it does not.
func (o Attend) codesHandover(q *cuda.Queue) codesHandoverArgs {
	if !o.Handover.DType.Quantised() {
		return codesHandoverArgs{}
	}
	return o.Handover.codes(q, o.T, o.Heads*o.KV.HeadDim)
}

// launchHanding launches one of the kernels that hand results over.
func (o Attend) launchHanding(q *cuda.Queue, names *attendNames, g cuda.Grid, args attendArgs,
	to codesHandoverArgs) error {
	switch {
	case o.Queries > 1:
		return launchHanding(q, o, names.verifyCodes, g, args, to)
	case o.Post.IsZero():
		return launchHanding(q, o, names.plainCodes, g, args, to)
	}
	return launchHanding(q, o, names.deferredCodes, g, attendDeferredArgs{args, o.post().args(q, o.Q)}, to)
}

// launchHanding launches such a kernel with its arguments, and those of a softcap or sinks.
func launchHanding[T any](q *cuda.Queue, o Attend, name string, g cuda.Grid, args T, to codesHandoverArgs) error {
	if o.hasLogits() {
		of := attendLogitsArgs[T]{args, o.logits(q)}
		return cuda.Launch(q, name, g, attendHandingArgs[attendLogitsArgs[T]]{of, to})
	}
	return cuda.Launch(q, name, g, attendHandingArgs[T]{args, to})
}
