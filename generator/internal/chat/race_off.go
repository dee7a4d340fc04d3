//go:build !race

package chat

// underRace says that the race detector runs, whose own memory counts as data.
const underRace = false
