//go:build cuda

package kernels

// units returns how many layers like the op's lie before it in a page, and in all of it, as kernels count that take all
// layers for alike.
func (k KV) units(layer int) (before, all int) {
	n := k.layer().elements()
	return k.start(layer) / n, k.token() / n
}

// hasUnits reports whether a page can be counted so.
func (k KV) hasUnits(layer int) bool {
	n := k.layer().elements()
	return k.start(layer)%n == 0 && k.token()%n == 0
}
