/**
 * Decides whether the body of a deletion is DeleteOptions. kube-apiserver decodes it with a scheme that has the kinds of
 * `meta.k8s.io` alone, and converts what it has decoded.
 */
import { newBadRequest } from '../../api/meta/status-error.ts';
import { quoteText } from '../../api/meta/quote.ts';

const META = 'meta.k8s.io/v1';
const WANTED = 'DeleteOptions';
const SCHEME = 'in scheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"';

/** The kinds that the scheme has in every version. */
const UNVERSIONED: ReadonlySet<string> = new Set([
  'APIGroup',
  'APIGroupList',
  'APIResourceList',
  'APIVersions',
  'CreateOptions',
  'Status',
  'UpdateOptions',
]);
/** The kinds that the scheme has in `meta.k8s.io/v1` alone. */
const VERSIONED: ReadonlySet<string> = new Set([
  'GetOptions',
  'ListOptions',
  'PartialObjectMetadata',
  'PartialObjectMetadataList',
  'PatchOptions',
  'Table',
  'TableOptions',
  'WatchEvent',
]);

/** Throws a 400 for another kind. An empty kind is that of DeleteOptions, whose version is not checked. */
export function checkDeleteOptionsKind(kind: string, apiVersion: string): void {
  if (kind === '' || kind === WANTED) return;
  const version = apiVersion === '' ? META : apiVersion;
  const isKnown = UNVERSIONED.has(kind) || (version === META && VERSIONED.has(kind));
  throw newBadRequest(
    isKnown
      ? `converting (v1.${kind}) to (v1.${WANTED}): unknown conversion`
      : `no kind ${quoteText(kind)} is registered for version ${quoteText(version)} ${SCHEME}`,
  );
}
