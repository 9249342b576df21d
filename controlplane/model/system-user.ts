/** Defines the identity under which the API server itself reads and writes: the one of kube-apiserver's loopback client. */
import { AUTHENTICATED_GROUP, MASTERS_GROUP } from '../../api/meta/system-users.ts';

/**
 * The user of the API server's own requests. It may do everything, by its group `system:masters`, whatever the configured
 * authorizers decide.
 */
export const SYSTEM_USER = { name: 'system:apiserver', groups: [MASTERS_GROUP, AUTHENTICATED_GROUP] } as const;

/** The name of the API server in managed fields. */
export const SYSTEM_FIELD_MANAGER = 'kube-apiserver';
