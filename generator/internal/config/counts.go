package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCount is the largest token count of a list. No prefill chunk is larger.
const maxCount = 1 << 16

// ParseCounts reads a list such as "1-50,64,80". The result is sorted and has no duplicates;
// it is nil for an empty list.
func ParseCounts(list string) ([]int, error) {
	var counts []int
	for _, part := range strings.Split(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		first, last, ranged := strings.Cut(part, "-")
		low, err := strconv.Atoi(first)
		high := low
		if err == nil && ranged {
			high, err = strconv.Atoi(last)
		}
		if err != nil || low < 1 || high < low || high > maxCount {
			return nil, fmt.Errorf("%q is not a count or a range such as 1-50, from 1 to %d", part, maxCount)
		}
		for n := low; n <= high; n++ {
			counts = append(counts, n)
		}
	}
	slices.Sort(counts)
	return slices.Compact(counts), nil
}
