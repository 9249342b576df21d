/**
 * Defines the strategy of cluster trust bundles: CA certificates for pods, with or without a signer. An unchanged bundle is not
 * parsed again.
 */
import type { V1beta1ClusterTrustBundleSpec } from '@kubernetes/client-node';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { type FieldError, invalid, tooLong } from '../../../../api/meta/field-error.ts';
import { nameIsSubdomain } from '../../../../api/meta/names.ts';
import { parseCertificate } from '../../../../api/pki/certificate.ts';
import { readPem, type PemBlock } from '../../../../api/pki/pem.ts';
import type { Strategy } from '../../strategy.ts';
import { signerNameErrors } from './certificate-validation.ts';
import { trustBundleColumns } from './columns.ts';
import { immutable } from '../field-rules.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

type TrustBundle = Kind<{ spec: V1beta1ClusterTrustBundleSpec }>;

const MAX_BUNDLE_BYTES = 1024 * 1024;
const OMITTED = '<value omitted>';

/** Validates the name. The bundle of a signer has the signer as the prefix of its name: `example.com:signer:name`. */
function nameErrors(name: string, signer: string): string[] {
  if (signer === '') {
    const text = 'ClusterTrustBundle without signer name must not have ":" in its name';
    return name.includes(':') ? [text] : nameIsSubdomain(name, { asPrefix: false });
  }
  const prefix = `${signer.replaceAll('/', ':')}:`;
  if (!name.startsWith(prefix))
    return [`ClusterTrustBundle for signerName ${signer} must be named with prefix ${prefix}`];
  return nameIsSubdomain(name.slice(prefix.length), { asPrefix: false });
}

function blockFault({ label, hasHeaders, der }: PemBlock): string | undefined {
  if (label !== 'CERTIFICATE') return `has bad block type: ${label}`;
  if (hasHeaders) return 'has PEM block headers';
  try {
    return parseCertificate(der).basicConstraints?.isCa === true ? undefined : 'does not have the CA bit set';
  } catch (error) {
    if (error instanceof Error) return 'does not parse as X.509';
    throw error;
  }
}

function anchorErrors(text: string): FieldError[] {
  if (Buffer.byteLength(text) > MAX_BUNDLE_BYTES) return [tooLong('spec.trustBundle', MAX_BUNDLE_BYTES)];
  const blocks = readPem(text);
  const bundleError = (detail: string): FieldError => invalid('spec.trustBundle', OMITTED, detail);
  const faults = blocks.flatMap((block, index) => {
    const fault = blockFault(block);
    return fault === undefined ? [] : [bundleError(`entry ${index} ${fault}`)];
  });
  if (faults.length > 0) return faults;
  if (blocks.length === 0) return [bundleError('at least one trust anchor must be provided')];
  const places = Map.groupBy(blocks.keys(), (index) => blocks[index]?.der.toString('base64') ?? '');
  return [...places.values()]
    .filter((indices) => indices.length > 1)
    .map((indices) => bundleError(`duplicate trust anchor (indices [${indices.join(' ')}])`));
}

function bundleErrors({ metadata, spec }: TrustBundle, old: TrustBundle | undefined): FieldError[] {
  const { name = '' } = metadata;
  const { signerName = '', trustBundle = '' } = spec ?? {};
  return [
    ...invalidFor('metadata.name', name, name === '' ? [] : nameErrors(name, signerName)),
    ...(signerName === '' ? [] : signerNameErrors('spec.signerName', signerName)),
    ...(old !== undefined && trustBundle === (old.spec?.trustBundle ?? '') ? [] : anchorErrors(trustBundle)),
  ];
}

export const trustBundles: Strategy<TrustBundle> = {
  // The valid names depend on the signer, so `nameErrors` validates them.
  nameRule: () => [],
  requiresResourceVersion: true,
  validateCreate: (object) => bundleErrors(object, undefined),
  validateUpdate: (object, old) => [
    ...bundleErrors(object, old),
    ...immutable('spec.signerName', object.spec?.signerName ?? '', old.spec?.signerName ?? ''),
  ],
  columns: trustBundleColumns,
  selectableFields: { 'spec.signerName': ({ spec }) => spec?.signerName ?? '' },
};
