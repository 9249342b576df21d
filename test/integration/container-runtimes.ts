/**
 * The runtimes and images that `scripts/test` started. Test files that import this one, also through others, share the network,
 * the cgroups and the daemons of the host, so `scripts/test` runs them one at a time.
 */

export const dockerSocket = process.env['ORCHLET_TEST_DOCKER_SOCKET'];
export const imageArchive = process.env['ORCHLET_TEST_IMAGES'];
/** Why tests that need containers are skipped; `false` where they can run. */
export const skipWithoutDocker: string | false =
  dockerSocket === undefined || imageArchive === undefined
    ? 'ORCHLET_TEST_DOCKER_SOCKET and ORCHLET_TEST_IMAGES are not set: scripts/test sets them'
    : false;

export const containerdSocket = process.env['ORCHLET_TEST_CONTAINERD_SOCKET'];
export const skipWithoutContainerd: string | false =
  containerdSocket === undefined || imageArchive === undefined
    ? 'ORCHLET_TEST_CONTAINERD_SOCKET and ORCHLET_TEST_IMAGES are not set: scripts/test sets them'
    : false;
