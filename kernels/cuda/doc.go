// Package cuda embeds the compiled CUDA kernels. The scripts in this folder build them: they
// find or install a CUDA toolkit, compile the kernels for each GPU, reject kernels that spill
// registers, and let Go link without a driver.
package cuda
