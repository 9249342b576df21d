/**
 * The flags of the control plane: names and meanings of the API server's and the controller manager's, plus `--data-dir`.
 * `--help`, completion and docs derive from this table; its groups stand in `options/`.
 */
import type { FlagValues } from '../api/component/flags.ts';
import { admissionFlags } from './options/admission.ts';
import { apiFlags } from './options/api.ts';
import { auditFlags } from './options/audit.ts';
import { authenticationFlags } from './options/authentication.ts';
import { authorizationFlags } from './options/authorization.ts';
import { controllersFlags } from './options/controllers.ts';
import { limitsFlags } from './options/limits.ts';
import { logsFlags } from './options/logs.ts';
import { servingFlags } from './options/serving.ts';
import { storageFlags } from './options/storage.ts';

export { parsePortRange, type PortRange } from './options/port-range.ts';

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
