// Package cudatest holds the tests and benchmarks of the ops that need an NVIDIA GPU: each op
// against its reference on the host, and its bits in batches, chunks and graphs of every form.
package cudatest
