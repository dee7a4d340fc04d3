//go:build cuda

package kernels

// units returns how many layers of the size of the op's would fill a page before it, and the whole page. Kernels find
// places so, as if all layers were alike.
func (k KV) units(layer int) (before, all int) {
	n := k.layer().elements()
	return k.start(layer) / n, k.token() / n
}

// hasUnits reports whether a page can be counted so.
func (k KV) hasUnits(layer int) bool {
	n := k.layer().elements()
	return k.start(layer)%n == 0 && k.token()%n == 0
}
