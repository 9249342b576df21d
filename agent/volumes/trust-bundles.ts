/**
 * The certificates of cluster trust bundles for projected volumes, without duplicates and in a stable order: those of one
 * bundle by name, or of all bundles of a signer that match a selector.
 */
import type { Volume } from '../base/model/pod.ts';
import { readPem } from '../../api/pki/pem.ts';
import type { Client, Resource } from '../../api/client/client.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { fromLabelSelector } from '../../api/meta/selector.ts';
import { isNotFound } from '../../api/meta/status-error.ts';

/** A projected source `clusterTrustBundle`. */
export type TrustBundleSource = NonNullable<
  NonNullable<NonNullable<Volume['projected']>['sources']>[number]['clusterTrustBundle']
>;

const clusterTrustBundles: Resource = {
  group: 'certificates.k8s.io',
  version: 'v1beta1',
  resource: 'clustertrustbundles',
  kind: 'ClusterTrustBundle',
  namespaced: false,
};

/**
 * Returns the certificates of the source as PEM; '' for an optional source without a bundle. Throws if a source that is not
 * optional has no bundle, and with the errors of the API server.
 */
export async function trustBundleCertificates(client: Client, source: TrustBundleSource): Promise<string> {
  const bundles = source.name === undefined ? await ofSigner(client, source) : await byName(client, source.name);
  if (bundles.length === 0 && source.optional !== true)
    throw new Error(
      source.name === undefined
        ? `combination of signerName "${source.signerName ?? ''}" and labelSelector matched zero ClusterTrustBundles`
        : `clustertrustbundle "${source.name}" not found`,
    );
  const certificates = new Set(bundles.flatMap(certificatesOf));
  return [...certificates].toSorted().join('');
}

async function byName(client: Client, name: string): Promise<KubeObject[]> {
  try {
    return [await client.get(clusterTrustBundles, '', name)];
  } catch (error) {
    if (isNotFound(error)) return [];
    throw error;
  }
}

/**
 * Returns the bundles of a signer that the selector matches. Without a selector none matches, with an empty selector all do.
 */
async function ofSigner(client: Client, { signerName = '', labelSelector }: TrustBundleSource): Promise<KubeObject[]> {
  const selector = fromLabelSelector(labelSelector);
  const { items } = await client.list(clusterTrustBundles, { fieldSelector: `spec.signerName=${signerName}` });
  return items.filter(({ metadata }) => selector.matches(metadata.labels ?? {}));
}

function certificatesOf(bundle: KubeObject): string[] {
  const text = (bundle['spec'] as { readonly trustBundle?: string } | undefined)?.trustBundle ?? '';
  return readPem(text).flatMap((block) => (block.label === 'CERTIFICATE' ? `${block.text}\n` : []));
}
