/**
 * The flags of the control plane: names and meanings of the API server's and the controller manager's, plus `--data-dir`.
 * `--help`, completion and docs derive from this table; its groups stand in `options/`.
 */
import type { FlagValues } from '../../api/component/flags.ts';
import { admissionFlags } from './admission.ts';
import { apiFlags } from './api.ts';
import { auditFlags } from './audit.ts';
import { authenticationFlags } from './authentication.ts';
import { authorizationFlags } from './authorization.ts';
import { controllersFlags } from './controllers.ts';
import { limitsFlags } from './limits.ts';
import { logsFlags } from './logs.ts';
import { servingFlags } from './serving.ts';
import { storageFlags } from './storage.ts';

export { parsePortRange, type PortRange } from './port-range.ts';

/** Every flag of `orchlet controlplane`. */
export const controlPlaneFlags = {
  ...storageFlags,
  ...servingFlags,
  ...limitsFlags,
  ...authenticationFlags,
  ...authorizationFlags,
  ...admissionFlags,
  ...apiFlags,
  ...auditFlags,
  ...controllersFlags,
  ...logsFlags,
} as const;

export type ControlPlaneFlags = FlagValues<typeof controlPlaneFlags>;
