package bench

import "testing"

func TestCommitOf(t *testing.T) {
	for version, want := range map[string]string{
		"0.1.0+485.g755c6a4": "755c6a4", "0.1.0+485.g755c6a4.dirty": "755c6a4.dirty",
		"0.1.0": "0.1.0", "1234567": "1234567", "": "",
	} {
		if got := commitOf(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
