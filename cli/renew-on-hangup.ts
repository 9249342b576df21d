/** SIGHUP makes the control plane check its certificates; `orchlet certs rotate` sends it. */
import type { Logger } from '../api/component/logger.ts';
import type { ControlPlane } from '../controlplane/main.ts';

/** Installs the handler of the signal. A failed check is logged. */
export function renewOnHangup(plane: ControlPlane, logger: Logger): void {
  process.on('SIGHUP', () => {
    plane
      .checkCertificates()
      .catch((error: unknown) => logger.error({ err: error }, 'The certificates could not be checked'));
  });
}
