/** Checks the CA bundle of a definition's conversion webhook. */
import { X509Certificate } from 'node:crypto';
import { type FieldError, invalid } from '../../../../api/meta/field-error.ts';
import { readPem } from '../../../../api/pki/pem.ts';
import { type Definition, isTrue } from './definition.ts';

type Conversion = Definition['spec']['conversion'];

const bundleOf = (conversion: Conversion): string => conversion?.webhook?.clientConfig?.caBundle ?? '';

/** Returns why the bundle of the conversion webhook is invalid, or `undefined` if it is valid or missing. */
export function caBundleError(conversion: Conversion): string | undefined {
  const bundle = bundleOf(conversion);
  if (bundle === '') return undefined;
  const blocks = readPem(Buffer.from(bundle, 'base64').toString('latin1'));
  const certificates = blocks.filter(({ label, hasHeaders }) => label === 'CERTIFICATE' && !hasHeaders);
  // One valid certificate is enough.
  if (certificates.some(({ der }) => isCertificate(der))) return undefined;
  let why = 'no valid certificate authority data seen';
  if (blocks.length === 0) why = 'unable to parse bytes as PEM block';
  else if (certificates.length > 0) why = 'failed to parse certificate: x509: malformed certificate';
  return `unable to load root certificates: ${why}`;
}

function isCertificate(der: Uint8Array): boolean {
  try {
    return new X509Certificate(der).raw.length > 0;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return false;
  }
}

/** Returns the errors of an update: an established definition with a valid bundle must keep a valid one. */
export function validateCaBundle({ spec }: Definition, old: Definition): FieldError[] {
  if (spec.conversion?.strategy !== 'Webhook' || !isTrue(old, 'Established')) return [];
  const why = caBundleError(spec.conversion);
  if (why === undefined || caBundleError(old.spec.conversion) !== undefined) return [];
  return [invalid('spec.conversion.webhookClientConfig.caBundle', bundleOf(spec.conversion), why)];
}
