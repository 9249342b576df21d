/**
 * Defines the flags of the control plane. Those that kube-apiserver or kube-controller-manager has as well have the same names
 * and meanings. `--help`, completion and the docs derive from this table.
 */
import type { FlagValues } from '../../api/component/flags.ts';
import { admissionFlags } from './admission.ts';
import { apiFlags } from './api.ts';
import { auditFlags } from './audit.ts';
import { authenticationFlags } from './authentication.ts';
import { authorizationFlags } from './authorization.ts';
import { controllersFlags } from './controllers.ts';
import { leaderElectionFlags } from './leader-election.ts';
import { limitsFlags } from './limits.ts';
import { logsFlags } from './logs.ts';
import { partsFlags } from './parts.ts';
import { servingFlags } from './serving.ts';
import { storageFlags } from './storage.ts';

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
  ...leaderElectionFlags,
  ...partsFlags,
  ...logsFlags,
} as const;

/** The parsed values of all flags. Durations are in milliseconds. */
export type ControlPlaneFlags = FlagValues<typeof controlPlaneFlags>;
