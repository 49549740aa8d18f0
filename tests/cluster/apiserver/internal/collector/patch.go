package collector

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patch merges into the object's metadata; a UID in it makes the patch fail on another object of the same name.
func (c *Collector) patch(ctx context.Context, n node, meta map[string]any) error {
	raw, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	_, err = c.client.Resource(n.resource).Namespace(n.namespace).Patch(ctx, n.name, types.MergePatchType, raw, metav1.PatchOptions{})
	return err
}
