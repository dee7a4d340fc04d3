package main

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"reel.internal/reel/client/gateway"
)

// asProgram has the test's binary be the program.
const asProgram = "REEL_GATEWAY_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestRefusedSettings: each mistake has its exit code and says what to correct.
func TestRefusedSettings(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "keys")
	if err := os.WriteFile(open, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"--nonsense":                      {exitUsage, "unknown flag: --nonsense"},
		"serve":                           {exitUsage, "everything is a flag"},
		"--alias a":                       {exitUsage, "want NAME=MODEL"},
		"--generator a=":                  {exitUsage, "want SOCKET or NAME=SOCKET"},
		"--ping 0s":                       {exitUsage, "--ping"},
		"--ping 3":                        {exitUsage, "want a time with its unit"},
		"--queue a":                       {exitUsage, "want a whole number"},
		"--listen 0.0.0.0:0":              {exitConfig, "give --api-key-file"},
		"--listen nonsense":               {exitConfig, "want HOST:PORT or unix:PATH"},
		"--api-key-file " + open:          {exitConfig, "chmod 600"},
		"--api-key-file /nowhere":         {exitConfig, "no such file"},
		"--tls-cert " + open:              {exitConfig, "--tls-key"},
		"--allow-origin app.example":      {exitConfig, "want an origin such as"},
		"--allow-host http://app.example": {exitConfig, "want a name such as"},
		"--generator /a --generator b=/a": {exitConfig, "given twice"},
	} {
		var stderr bytes.Buffer
		code := execute(strings.Fields(line), os.Stdout, &stderr, zerolog.Nop())
		if code != want.code || !strings.Contains(stderr.String(), want.says) {
			t.Errorf("%s: %d %s, want %d %s", line, code, stderr.String(), want.code, want.says)
		}
	}
}

// TestSettings: flags become options.
func TestSettings(t *testing.T) {
	var got gateway.Options
	s := &settings{run: func(o gateway.Options) error { got = o; return nil }}
	root := s.command()
	root.SetArgs(strings.Fields("--listen a:1 --listen unix:/b --generator /x=y --generator n=/z --alias one=two=three " +
		"--allow-host h --allow-origin o --health-listen c:2 --open-loopback --ping 5s --queue 7"))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if len(got.Listen) != 2 || len(got.Generators) != 2 || got.Generators[0].Socket != "/x=y" ||
		got.Generators[1] != (gateway.Generator{Name: "n", Socket: "/z"}) || got.Aliases["one"] != "two=three" ||
		got.AllowHosts[0] != "h" || got.AllowOrigins[0] != "o" || got.HealthListen[0] != "c:2" || !got.OpenLoopback ||
		got.Ping.Seconds() != 5 || got.Queue != 7 || got.Keys != nil {
		t.Errorf("%+v", got)
	}
}

// TestLife: the program says where it listens, serves, and ends at SIGTERM with 0.
func TestLife(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--listen", "127.0.0.1:0", "--generator", "/nowhere/generator.sock")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		t.Fatalf("%q, %v", line, err)
	}
	answer, err := http.Get("http://" + address + "/health")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", answer, err)
	}
	_ = answer.Body.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
