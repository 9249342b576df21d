/**
 * The runtimes and images that `scripts/test` started. Test files that import this one, directly or indirectly, share the
 * network, the cgroups and the daemons of the host, so `scripts/test` runs them one at a time.
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
