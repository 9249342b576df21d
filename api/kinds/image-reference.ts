/** Parses image references: the default registry and tag, and the kubelet's errors for invalid references. Pure. */

interface ImageReference {
  readonly registry: string;
  readonly repository: string;
  readonly tag: string;
  readonly digest: string;
}

const COMPONENT = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$/;
const TAG = /^\w[\w.-]{0,127}$/;
const DIGEST = /^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}$/;
const DOMAIN =
  /^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[0-9a-fA-F:]+\])(?::\d+)?$/;

/** The maximum length of the path below the registry. */
const MAX_REPOSITORY = 255;

/** The kubelet's error for a reference that cannot be parsed. */
export class ImageReferenceError extends Error {
  override readonly name = 'ImageReferenceError';
  constructor(image: string, why: string) {
    super(`Failed to apply default image tag "${image}": couldn't parse image name "${image}": ${why}`);
  }
}

/**
 * Parses `[registry/]repository[:tag][@digest]`. The registry is `docker.io` by default, and the tag `latest` without a
 * digest. Throws `ImageReferenceError`.
 */
export function parseImageReference(image: string): ImageReference {
  const at = image.indexOf('@');
  const digest = at === -1 ? '' : image.slice(at + 1);
  const beforeDigest = at === -1 ? image : image.slice(0, at);
  const slash = beforeDigest.indexOf('/');
  const first = slash === -1 ? '' : beforeDigest.slice(0, slash);
  const hasRegistry = slash !== -1 && (/[.:]/.test(first) || first === 'localhost' || first.toLowerCase() !== first);
  const registry = hasRegistry ? first : 'docker.io';
  let path = hasRegistry ? beforeDigest.slice(slash + 1) : beforeDigest;
  let tag = '';
  const colon = path.lastIndexOf(':');
  if (colon > path.lastIndexOf('/')) {
    tag = path.slice(colon + 1);
    path = path.slice(0, colon);
  }
  const repository = registry === 'docker.io' && !path.includes('/') ? `library/${path}` : path;
  if (path === '' || image.trim() === '') throw new ImageReferenceError(image, 'invalid reference format');
  if (repository.toLowerCase() !== repository)
    throw new ImageReferenceError(image, `invalid reference format: repository name (${repository}) must be lowercase`);
  if (
    !DOMAIN.test(registry) ||
    !repository.split('/').every((part) => COMPONENT.test(part)) ||
    (tag !== '' && !TAG.test(tag)) ||
    (digest !== '' && !DIGEST.test(digest))
  ) {
    throw new ImageReferenceError(image, 'invalid reference format');
  }
  if (repository.length > MAX_REPOSITORY)
    throw new ImageReferenceError(image, `repository name must not be more than ${MAX_REPOSITORY} characters`);
  return { registry, repository, tag: tag === '' && digest === '' ? 'latest' : tag, digest };
}

/** Whether `parseImageReference` accepts the text. */
export function isImageReference(image: string): boolean {
  try {
    parseImageReference(image);
    return true;
  } catch (error) {
    if (error instanceof ImageReferenceError) return false;
    throw error;
  }
}

/** Returns the full registry and path, without tag and digest. Throws `ImageReferenceError`. */
export function repositoryName(image: string): string {
  const { registry, repository } = parseImageReference(image);
  return `${registry}/${repository}`;
}

/** Returns the text that the user wrote, with `:latest` if it has neither tag nor digest. Throws `ImageReferenceError`. */
export function withDefaultTag(image: string): string {
  const { tag } = parseImageReference(image);
  const bare = !image.includes('@') && image.lastIndexOf(':') <= image.lastIndexOf('/');
  return bare ? `${image}:${tag}` : image;
}
