/** Lists the values of `--authorization-mode`. The flags take them from here, without loading the authorizers. */

/** The authorizers that the flag may name. */
export const AUTHORIZATION_MODES = ['Node', 'RBAC', 'ABAC', 'Webhook', 'AlwaysAllow', 'AlwaysDeny'] as const;

/** A value of `--authorization-mode`. */
export type AuthorizationMode = (typeof AUTHORIZATION_MODES)[number];
