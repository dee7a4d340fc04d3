package config

import "testing"

func TestDefaultSocket(t *testing.T) {
	for _, c := range []struct {
		uid     int
		runtime string
		want    string
	}{
		{0, "/run/user/0", "/run/reel/generator.sock"},
		{1000, "/run/user/1000", "/run/user/1000/reel/generator.sock"},
		{1000, "", "/tmp/reel-1000/generator.sock"},
	} {
		if got := defaultSocket(c.uid, c.runtime); got != c.want {
			t.Errorf("uid %d, runtime %q: got %s, want %s", c.uid, c.runtime, got, c.want)
		}
	}
}
