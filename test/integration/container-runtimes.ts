/**
 * Provides the runtimes and images that `scripts/test` started. Each of its lanes has runtimes and a network of its own, and
 * runs one test file at a time. Files in several lanes share the host's processors, memory, disk and cgroups, so the names of
 * what they create there differ.
 */

/** The socket of a Docker that this lane alone uses. */
export const dockerSocket = process.env['ORCHLET_TEST_DOCKER_SOCKET'];
/** An archive with a pause image and a shell image. */
export const imageArchive = process.env['ORCHLET_TEST_IMAGES'];
/** The reason why tests with containers are skipped, or `false`. */
export const skipWithoutDocker: string | false =
  dockerSocket === undefined || imageArchive === undefined
    ? 'ORCHLET_TEST_DOCKER_SOCKET and ORCHLET_TEST_IMAGES are not set: scripts/test sets them'
    : false;

/** The socket of a containerd that this lane alone uses. */
export const containerdSocket = process.env['ORCHLET_TEST_CONTAINERD_SOCKET'];
/** The reason why tests with containerd are skipped, or `false`. */
export const skipWithoutContainerd: string | false =
  containerdSocket === undefined || imageArchive === undefined
    ? 'ORCHLET_TEST_CONTAINERD_SOCKET and ORCHLET_TEST_IMAGES are not set: scripts/test sets them'
    : false;
