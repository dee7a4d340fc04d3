// Package cuda carries the compiled CUDA kernels, and the scripts beside it
// build them: they find a toolkit or install one, compile the kernels for each
// GPU, refuse those that spill registers, and let Go link without a driver.
package cuda
