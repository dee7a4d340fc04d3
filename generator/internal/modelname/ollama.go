package modelname

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/files"
)

// ollamaPrefix begins the names of Ollama's models.
const ollamaPrefix = "ollama:"

// ollamaName is [[HOST/]NAMESPACE/]NAME[:TAG].
type ollamaName struct{ host, namespace, name, tag string }

// ollamaPart matches a part of a name.
var ollamaPart = regexp.MustCompile(`^[A-Za-z0-9_][\w.-]{0,127}$`)

// parseOllama reads a name. What it leaves out is as in Ollama: registry.ollama.ai/library/NAME:latest.
func parseOllama(text string) (ollamaName, error) {
	n := ollamaName{"registry.ollama.ai", "library", "", "latest"}
	name, tag, tagged := strings.Cut(text, ":")
	parts := strings.Split(name, "/")
	if tagged {
		n.tag = tag
	}
	switch len(parts) {
	case 1:
		n.name = parts[0]
	case 2:
		n.namespace, n.name = parts[0], parts[1]
	case 3:
		n.host, n.namespace, n.name = parts[0], parts[1], parts[2]
	}
	for _, part := range []string{n.host, n.namespace, n.name, n.tag} {
		if !ollamaPart.MatchString(part) {
			return n, config.Refuse(ErrMissing, "it must be ollama:NAME or ollama:NAME:TAG, as in ollama:llama3.2:1b; "+
				"ollama list prints the names")
		}
	}
	return n, nil
}

// String returns the name as Ollama prints it.
func (n ollamaName) String() string {
	name := n.name + ":" + n.tag
	if n.host != "registry.ollama.ai" {
		return path.Join(n.host, n.namespace, name)
	}
	if n.namespace != "library" {
		return path.Join(n.namespace, name)
	}
	return name
}

// manifest returns the path of the manifest in a store.
func (n ollamaName) manifest(store string) string {
	return filepath.Join(store, "manifests", n.host, n.namespace, n.name, n.tag)
}

// maxManifest bounds a manifest, in bytes.
const maxManifest = 1 << 20

// findOllama returns the GGUF file of a model of Ollama.
func (s Stores) findOllama(text string) (Found, error) {
	n, err := parseOllama(text)
	if err != nil {
		return Found{}, err
	}
	var denied error
	for _, store := range s.Ollama {
		raw, err := files.Read(files.Dir("/"), strings.TrimPrefix(n.manifest(store), "/"), maxManifest)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission):
			denied = errors.Join(denied, explained(err))
			continue
		case err != nil:
			return Found{}, config.OfKind(explained(err), ErrDamaged)
		}
		file, err := n.model(store, raw)
		return Found{file, n.String()}, err
	}
	if denied != nil {
		return Found{}, denied
	}
	return Found{}, config.Refuse(ErrMissing, "no store of Ollama holds it (%s): run ollama pull %s, or give the path of "+
		"a model", listed(s.Ollama), n)
}

// Layers of a manifest. Others, such as a licence, parameters and a template, are not used: the GGUF file has a
// template of its own.
const (
	modelLayer   = "application/vnd.ollama.image.model"
	adapterLayer = "application/vnd.ollama.image.adapter"
)

// digest matches the digest of a blob.
var digest = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

// model returns the path of the GGUF file that a manifest names.
func (n ollamaName) model(store string, manifest []byte) (string, error) {
	var m struct {
		Layers []struct {
			MediaType, Digest string
			Size              int64
		}
	}
	damaged := func(why string) error {
		return config.Refuse(ErrDamaged, "%s %s: run ollama rm %s, then ollama pull %s", shown(n.manifest(store)), why, n, n)
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return "", damaged(fmt.Sprintf("is no manifest (%.200v)", err))
	}
	blob, size := "", int64(0)
	for _, layer := range m.Layers {
		id := digest.FindStringSubmatch(layer.Digest)
		switch {
		case layer.MediaType == adapterLayer:
			return "", config.Refuse(ErrMissing, "it is a model with an adapter, which is not supported: take the model "+
				"that the adapter was made for, or one with the adapter merged")
		case layer.MediaType != modelLayer:
			continue
		case id == nil || layer.Size < 0:
			return "", damaged("names a model by no digest")
		case blob != "":
			return "", damaged("names several models")
		}
		blob, size = filepath.Join(store, "blobs", "sha256-"+id[1]), layer.Size
	}
	if blob == "" {
		return "", config.Refuse(ErrMissing, "its manifest names no GGUF file: pull a tag of %s that is quantised, or "+
			"take the checkpoint from Hugging Face with hf download ORG/NAME", n.name)
	}
	return blob, n.complete(blob, size)
}

// complete checks that a blob is a regular file of that size that this user may read.
func (n ollamaName) complete(blob string, size int64) error {
	f, err := files.Open(blob)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return config.Refuse(ErrMissing, "its file %s is missing or half downloaded: run ollama pull %s", shown(blob), n)
		case errors.Is(err, files.ErrNotRegular):
			return config.OfKind(err, ErrDamaged)
		}
		return explained(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() != size {
		err = config.Refuse(ErrDamaged, "its file %s has %d bytes and the manifest says %d: remove the file, and run "+
			"ollama pull %s", shown(blob), info.Size(), size, n)
	}
	return err
}
