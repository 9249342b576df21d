/** SIGHUP makes the control plane, or a standby, check its certificates; `orchlet certs rotate` sends it. */
import type { Logger } from '../../api/component/logger.ts';
import type { ControlPlane } from '../../controlplane/main.ts';

/** Installs the handler of the signal. A failed check is logged. Returns a function that removes the handler. */
export function renewOnHangup(plane: Pick<ControlPlane, 'checkCertificates'>, logger: Logger): () => void {
  const check = (): void => {
    plane
      .checkCertificates()
      .catch((error: unknown) => logger.error({ err: error }, 'The certificates could not be checked'));
  };
  process.on('SIGHUP', check);
  return () => {
    process.off('SIGHUP', check);
  };
}
