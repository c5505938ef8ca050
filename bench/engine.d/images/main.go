// push [-gzip] ARCHIVE NAME REFERENCE: a kubelet's checkpoint archive as an image in a registry, as the recipes have it: from scratch, one layer with the archive's
// files, annotated, under both names of the annotation, CRI-O's and containerd's. -gzip: as buildah sends it, by the same library, through a file beside the archive.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/pgzip"
)

// layer is a file in a registry's form: a tar, or one that was compressed.
type layer struct {
	path         string
	digest, diff v1.Hash
	size         int64
	media        types.MediaType
}

func (l layer) Digest() (v1.Hash, error)             { return l.digest, nil }
func (l layer) DiffID() (v1.Hash, error)             { return l.diff, nil }
func (l layer) Compressed() (io.ReadCloser, error)   { return os.Open(l.path) }
func (l layer) Uncompressed() (io.ReadCloser, error) { return nil, errors.New("not asked for") }
func (l layer) Size() (int64, error)                 { return l.size, nil }
func (l layer) MediaType() (types.MediaType, error)  { return l.media, nil }

// plain reads the archive once for its hash; it is sent as it is.
func plain(path string) (layer, error) {
	file, err := os.Open(path)
	if err != nil {
		return layer{}, err
	}
	defer file.Close()
	hash, size, err := v1.SHA256(file)
	return layer{path, hash, hash, size, types.OCIUncompressedLayer}, err
}

// compressed reads the archive once, for both hashes and the compressed file.
func compressed(path, to string) (layer, error) {
	file, err := os.Open(path)
	if err != nil {
		return layer{}, err
	}
	defer file.Close()
	out, err := os.Create(to)
	if err != nil {
		return layer{}, err
	}
	defer out.Close()
	diff, digest := sha256.New(), sha256.New()
	zip := pgzip.NewWriter(io.MultiWriter(out, digest))
	if _, err := io.Copy(io.MultiWriter(zip, diff), file); err != nil {
		return layer{}, err
	}
	if err := zip.Close(); err != nil {
		return layer{}, err
	}
	info, err := out.Stat()
	if err != nil {
		return layer{}, err
	}
	hash := func(h hash.Hash) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))} }
	return layer{to, hash(digest), hash(diff), info.Size(), types.OCILayer}, nil
}

func push(zip bool, path, container, reference string) error {
	var made layer
	var err error
	if zip {
		to := path + ".gz"
		defer os.Remove(to)
		made, err = compressed(path, to)
	} else {
		made, err = plain(path)
	}
	if err != nil {
		return err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, made); err != nil {
		return err
	}
	annotated := mutate.Annotations(image, map[string]string{
		"io.kubernetes.cri-o.annotations.checkpoint.name": container,
		"org.criu.checkpoint.container.name":              container,
	}).(v1.Image)
	ref, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(ref, annotated)
}

func main() {
	zip := flag.Bool("gzip", false, "compress the layer")
	flag.Parse()
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "push [-gzip] ARCHIVE NAME REFERENCE")
		os.Exit(2)
	}
	if err := push(*zip, flag.Arg(0), flag.Arg(1), flag.Arg(2)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
