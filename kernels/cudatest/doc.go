// Package cudatest holds the tests and benchmarks of the ops that need an NVIDIA GPU. They
// compare each op with its reference on the host, and its bits in batches, chunks and graphs of
// all forms.
package cudatest
