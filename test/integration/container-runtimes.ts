/**
 * The runtimes and images that `scripts/test` started. Each of its lanes has runtimes and a network of its own, and runs one
 * test file at a time. Files in several lanes share the host's processors, memory, disk and cgroups, so the names of what they
 * create there differ.
 */

export const dockerSocket = process.env['ORCHLET_TEST_DOCKER_SOCKET'];
export const imageArchive = process.env['ORCHLET_TEST_IMAGES'];
/** The reason why tests with containers are skipped, or `false`. */
export const skipWithoutDocker: string | false =
  dockerSocket === undefined || imageArchive === undefined
    ? 'ORCHLET_TEST_DOCKER_SOCKET and ORCHLET_TEST_IMAGES are not set: scripts/test sets them'
    : false;

export const containerdSocket = process.env['ORCHLET_TEST_CONTAINERD_SOCKET'];
export const skipWithoutContainerd: string | false =
  containerdSocket === undefined || imageArchive === undefined
    ? 'ORCHLET_TEST_CONTAINERD_SOCKET and ORCHLET_TEST_IMAGES are not set: scripts/test sets them'
    : false;
