/** Lists the signature algorithms of the tokens of OIDC issuers. The flags and the configuration file allow the same ones. */

/** The algorithms by their names in JWS (RFC 7518). */
export const SIGNING_ALGORITHMS: readonly string[] = [
  'RS256',
  'RS384',
  'RS512',
  'ES256',
  'ES384',
  'ES512',
  'PS256',
  'PS384',
  'PS512',
];
