package weights

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

const maxIndex = 16 << 20 // bytes

// readIndex returns the shard that the index names for each tensor.
func readIndex(fsys fs.FS) (map[string]string, error) {
	data, err := readBounded(fsys, indexName, maxIndex)
	if err != nil {
		return nil, err
	}
	shardOf := map[string]string{}
	err = eachMember(data, func(name string, value *reader) error {
		switch name {
		case "metadata":
			return value.decode(new(json.RawMessage))
		case "weight_map":
			return value.weightMap(shardOf)
		}
		return fmt.Errorf("%w: unknown field", ErrHeader)
	})
	if err == nil && len(shardOf) == 0 {
		err = fmt.Errorf("%w: weight_map names no tensor", ErrIndex)
	}
	return shardOf, err
}

func (r *reader) weightMap(shardOf map[string]string) error {
	if t, err := r.token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%w: not an object", ErrHeader)
	}
	return r.members(func(tensor string, value *reader) error {
		var shard string
		if err := value.decode(&shard); err != nil {
			return err
		}
		shardOf[tensor] = shard
		return checkShard(shard)
	})
}

// checkShard refuses a shard that is not a plain file name, so that an index cannot
// lead out of its directory.
func checkShard(name string) error {
	if strings.ContainsAny(name, `/\`) || !strings.HasSuffix(name, ".safetensors") {
		return fmt.Errorf("%w: %.80q is not the name of a shard", ErrIndex, name)
	}
	return nil
}

func readBounded(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return data, err
}
