//go:build race

package chat

// underRace reports whether the race detector runs. Its memory counts as data.
const underRace = true
