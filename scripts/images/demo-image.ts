/** Names the image that `scripts/airgap-images` makes beside the pause image. */

/** A static busybox with a shell and the usual commands. `examples/` and the tests run it. */
export const DEMO_IMAGE = 'orchlet.local/demo:1';
