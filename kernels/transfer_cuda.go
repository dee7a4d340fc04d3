//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA copies with a copy engine.
func (o StorePage) CUDA(q *cuda.Queue) error {
	return q.Copy(o.KV.ofRank(o.To, q.Rank()), o.KV.page(o.Page))
}

// CUDA copies with a copy engine.
func (o LoadPage) CUDA(q *cuda.Queue) error {
	return q.Copy(o.KV.page(o.Page), o.KV.ofRank(o.From, q.Rank()))
}
