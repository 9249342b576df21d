/** Converts names of TLS parameters from flags and configuration files (IANA's and Go's names) to those of Node.js. */

/**
 * Converts a name such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` to `ECDHE-RSA-AES128-GCM-SHA256`. Returns `undefined` for an
 * unknown name.
 */
export function cipherName(name: string): string | undefined {
  if (/^TLS_(AES_(128_GCM_SHA256|256_GCM_SHA384)|CHACHA20_POLY1305_SHA256)$/.test(name)) return name;
  const [, exchange, cipher] = /^TLS_((?:ECDHE_)?(?:RSA|ECDSA))_WITH_([A-Z0-9_]+)$/.exec(name) ?? [];
  if (exchange === undefined || cipher === undefined || exchange === 'ECDSA') return undefined;
  const prefix = exchange === 'RSA' ? '' : `${exchange.replace('_', '-')}-`;
  if (/^CHACHA20_POLY1305(_SHA256)?$/.test(cipher)) return prefix === '' ? undefined : `${prefix}CHACHA20-POLY1305`;
  const [, bits, mode, hash] = /^AES_(128|256)_(CBC|GCM)_(SHA(?:256|384)?)$/.exec(cipher) ?? [];
  if (bits === undefined || mode === undefined || hash === undefined) return undefined;
  return `${prefix}AES${bits}-${mode === 'GCM' ? 'GCM-' : ''}${hash}`;
}

/** The names of key exchange groups in Node.js by their TLS numbers. */
export const GROUPS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    '23': 'P-256',
    '24': 'P-384',
    '25': 'P-521',
    '29': 'X25519',
    '4588': 'X25519MLKEM768',
  }),
);

/** Returns the value of Node.js' `ecdhCurve` for groups given by their TLS numbers. An unknown number stays as it is. */
export function groupNames(numbers: readonly string[]): string {
  return numbers.map((number) => GROUPS.get(number) ?? number).join(':');
}
