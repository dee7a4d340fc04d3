//go:build linux && manual

package main

import (
	"fmt"
	"os"

	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/systemd/manual"
)

// With the tag manual the program writes its man pages and completions into the folder given
// as its first argument, and exits.
func init() {
	p := program{env: os.Getenv, stdout: os.Stdout, stderr: logging.NewQueue(os.Stderr)}
	root := p.command()
	root.Example = examples
	if err := manual.Write(root, os.Args[1], notes, exits, variables, filesSection); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const examples = `  reel-generator
  reel-generator --model DIR --device cuda --max-batch 8
  reel-generator --model FILE.gguf
  reel-generator --model Qwen/Qwen3-0.6B
  reel-generator --model ollama:llama3.2:1b
  reel-generator plan --model DIR --vram 24GiB
  reel-generator convert DIR model.gguf --to q4_k_m
  reel-generator perplexity --model model.gguf TEXT
  reel-generator check --device host`

var notes = manual.Notes(
	manual.Entry{Term: "--device", Text: "host is this machine's processors, cuda an NVIDIA GPU, through " +
		"reel-generator-cuda beside this program. auto takes a GPU if there is one; without one it serves on host " +
		"and says why in one line. cuda requires a GPU; without one it exits with 78."},
	manual.Entry{Term: "--gpus", Text: "Each GPU has a part of every weight and of the KV cache, so a model may be as " +
		"large as their memory together; with latent attention each has the whole cache. All have the same plan: the " +
		"one with the least free memory decides. If they can address each other's memory (nvidia-smi topo -p2p w) " +
		"they do; else, or with --gpu-link host, what they exchange goes through memory of the machine, several times slower. A request gives the same tokens as long as the number of GPUs is the same. On host as many simulated " +
		"GPUs share the processors; their tokens are those of one."},
	manual.Entry{Term: "--max-batch", Text: "A few more sequences are reserved for users who have none running."},
	manual.Entry{Term: "--host-cache", Text: "Keys and values of prompts are copied there before they leave the device, and " +
		"copied back when a later prompt begins alike. Requests then take the device's memory as they need it; if it " +
		"runs out, one moves out and comes back. auto: beside a GPU a quarter of the memory that the machine and its " +
		"cgroup leave, at most twice the KV cache, and none below 256 MiB. The memory is pinned after the start, beside " +
		"serving. On host it is part of the memory that reel-generator plan shows."},
	manual.Entry{Term: "--cache-dir", Text: "Pages are written beside serving. After SIGTERM, when the last request has " +
		"ended, those that have no file yet are written for 2 seconds at most; a second signal ends that at once."},
	manual.Entry{Term: "--draft", Text: "The model computes several rows of a request in one step hardly slower than one, so " +
		"a guess that is right is a token for nothing, and one that is wrong changes no token, log-probability or end of " +
		"any request. auto, the default, is lookup with cuda, where guesses that are never right cost less than 1% of the " +
		"speed, and off with host, where each row costs nearly a step. lookup takes the longest match of the request's last tokens in its prompt and its answer so far: " +
		"answers that repeat parts of the prompt, such as edited code, come faster. A request guesses less, or nothing, " +
		"by its field draft (reel --draft). reel status and the metrics count guesses. given takes the guesses from the " +
		"request's field prediction, for reel-bench speculate. Anything else is the place of a draft model, a directory " +
		"or a GGUF file (./lookup for a directory of that name): a smaller model with the same tokenizer, which guesses " +
		"in the same step; or a directory of an EAGLE-3 head that was trained for the model, as SafeAILab or " +
		"speculators publish them: one layer, which guesses from the model's own hidden states. Keys and values of " +
		"either are kept, cached and moved with the model's, so pages are larger; reel-generator plan --draft counts it. " +
		"One that is missing, cannot be served or is for another model ends the start with 78. given:DIR runs what is in " +
		"DIR and then takes the guesses of the request, to measure what its passes cost."},
	manual.Entry{Term: "--draft-window", Text: "What a draft model or an EAGLE-3 head costs then no longer grows with " +
		"the text. It reads the first 64 tokens, or the first n, and the last n, in whole pages, when it guesses; the " +
		"model reads all, so no answer changes. The guesses of a long text may be right less often."},
	manual.Entry{Term: "--chat-template", Text: "The template gets the special tokens of the model's tokenizer. A file " +
		"that cannot be read, or does not compile, ends the start with 78; at a reload the template in use then stays."},
	manual.Entry{Term: "--token-gap", Text: "While a prompt is computed, running answers get a token after each part " +
		"of it. The part is what is expected, from what steps took lately, to end with the answers' next tokens within " +
		"this time; if their tokens alone take more than half of it, as long as they take. A shorter time makes " +
		"answers steadier and first tokens later. If at least as many of a user's prompts wait as answers run, four " +
		"or more, running ones wait up to ten times as long, so that all get their first tokens soon. No answer changes."},
	manual.Entry{Term: "--roller", Text: "off captures no graph while serving, for comparison."},
	manual.Entry{Term: "--settings, SIGHUP", Text: "Of a changed file, SIGHUP applies log level, graphs' budget, " +
		"limits and chat template, whose file it reads again; the log names settings that need a restart. A file with an error changes nothing. A generator that " +
		"was started on a terminal ends at SIGHUP as at SIGTERM."},
	manual.Entry{Term: "--metrics", Text: "Other addresses are refused. grafana-dashboard.json, in the package's " +
		"documentation, shows all metrics."},
	manual.Entry{Term: "--log-format, --log-level", Text: "A JSON log has a line for each request, without its text. " +
		"In a log on a terminal, lines about requests that did not fail are of level debug. Each message is limited " +
		"to 200 lines at once and 50 a second; left_out counts the rest."},
	manual.Entry{Term: "convert --to", Text: "q8_0 and q4_0 have that format in all matrices; q4_k_m has Q4_K and, in the " +
		"head and half of the matrices that lose most, Q6_K. Norms and biases stay float32. If rows are no multiple of " +
		"256, q4_k_m has Q5_0 and Q8_0 instead; if they are no multiple of 32, the model is refused. The error that is " +
		"printed is the root of the mean squared error over that of the mean squared weight."},
	manual.Entry{Term: "--model", Text: "The files are mapped while the generator runs: replace a file by renaming " +
		"another into its place. If files are written in place, the generator ends with exit code 75. A path that " +
		"exists wins over a name. ORG/NAME is the snapshot that refs/main names; ORG/NAME/FILE.gguf names one of " +
		"several GGUF files. Of an Ollama model the GGUF file is served, with its own chat template, and nothing " +
		"else of it is used. Nothing is downloaded: what is missing is named with the command that gets it. The user " +
		"of the service has no home directory: give a path, or set HF_HUB_CACHE or OLLAMA_MODELS in its settings. " +
		"Quantised checkpoints of compressed-tensors (FP8, four bits, MXFP4), fp8, AWQ and GPTQ are converted at load; activations are never quantised. A GPU refuses " +
		"weights in activation order (desc_act), gate and up projections in two formats, and q, k and v of which some are " +
		"quantised and some are not, or some are in f16 and others not: --device host serves them."},
)

var exits = manual.Exit(
	manual.Entry{Term: "0", Text: "Stopped by a signal, or the command is done."},
	manual.Entry{Term: "1", Text: "Failed, or a second signal ended running requests; for check and " +
		"doctor: a fault was found."},
	manual.Entry{Term: "64", Text: "Usage: an unknown flag or command."},
	manual.Entry{Term: "75", Text: "A later start can succeed: the model's files changed, or another " +
		"generator that starts or drains holds the socket."},
	manual.Entry{Term: "78", Text: "Configuration: a bad value, no GPU with --device cuda, a model that cannot be " +
		"served or converted, or does not fit."},
)

var variables = manual.Environment(
	manual.Entry{Term: "REEL_FLAG", Text: "The value of a flag: --max-batch is REEL_MAX_BATCH. The flag wins."},
	manual.Entry{Term: "XDG_RUNTIME_DIR", Text: "Directory of the default socket, except for root."},
	manual.Entry{Term: "HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME", Text: "Where the Hugging Face cache is: the cache itself, " +
		"or a directory with hub or huggingface/hub in it. Default: ~/.cache/huggingface/hub."},
	manual.Entry{Term: "OLLAMA_MODELS", Text: "Ollama's store. Default: ~/.ollama/models, then " +
		"/usr/share/ollama/.ollama/models."},
	manual.Entry{Term: "LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_USEC", Text: "Set by systemd: the socket, notifications, " +
		"and the watchdog."},
	manual.Entry{Term: "TERM", Text: "If it is dumb, the log has no colours and loading draws no bar."},
)

var filesSection = manual.Files(
	manual.Entry{Term: "/run/reel/generator.sock", Text: "Default socket of root and of the service."},
	manual.Entry{Term: "$XDG_RUNTIME_DIR/reel/generator.sock", Text: "Default socket of other users."},
	manual.Entry{Term: "/tmp/reel-UID/generator.sock", Text: "The same, without XDG_RUNTIME_DIR."},
	manual.Entry{Term: "generator.state", Text: "Beside the socket: the record of a failure, or of a generator that " +
		"stops or sleeps (--idle-exit)."},
	manual.Entry{Term: "/etc/reel/generator.env", Text: "Settings of the service."},
)
