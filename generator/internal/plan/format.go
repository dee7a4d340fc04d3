package plan

import "github.com/dustin/go-humanize"

// Size formats a number of bytes with four digits, as in 16.25 GiB: sizes of a plan are
// compared with each other.
func Size(bytes int64) string { return humanize.IBytesN(uint64(max(bytes, 0)), 4) }
