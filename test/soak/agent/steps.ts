/**
 * Computes the names of the agent's steps. Values that differ between pods (ids, times, names) are removed, so that a step has
 * the same name for all pods.
 */

const REPLACEMENTS: readonly (readonly [pattern: RegExp, replacement: string])[] = [
  [/\?.*$/g, ''],
  [/\/tmp\/orchlet-soak-[^/ ]+/g, ''],
  [/\/soak-(docker|containerd)-\d+\//g, '/NODE/'],
  [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'UID'],
  [/[0-9a-f]{64}/g, 'ID'],
  [/(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])/g, 'UID'],
  [/\.[0-9a-f]{12}\.tmp$/g, '.tmp'],
  [/soak-(full|job|static)-\d+(-soak-[a-z]+-\d+)?/g, 'POD'],
  [/kube-api-access-\w+/g, 'kube-api-access'],
  [/\/\.\.\d\S*/g, '/..TIME'],
  [/\/cgroup\/[a-z_,]+\//g, '/cgroup/CONTROLLER/'],
  [/\/(fd|proc)\/\d+/g, '/$1/N'],
  [/\d{4,}/g, 'N'],
];

/**
 * Returns the name of a step. `kind` is a function of `fs`, `run`, or the method of a request. `target` is a path, a command or
 * the path of a request.
 */
export function stepName(kind: string, target: string): string {
  let name = target;
  for (const [pattern, replacement] of REPLACEMENTS) name = name.replaceAll(pattern, replacement);
  return `${kind} ${name}`;
}

const STEPS: readonly RegExp[] = [
  /^POST \/runtime\.v1\.\w+\/(Run|Create|Start|Stop|Remove|Pull|Reopen|UpdateContainer)/,
  /^(POST|PUT|DELETE) (\/v[\d.]+)?\/(containers|networks|images|exec)\b/,
  /^(POST|PUT|PATCH|DELETE) \/api\/v1\/namespaces\/\w+\/(pods|serviceaccounts)/,
  /^run (\S*\/)?(mount|umount) /,
  /^(open|writeFile|rename|mkdir|rm|rmdir|unlink|symlink|link|truncate) (\/root\/(pods|docker|last-known|image_manager)|\/root\/\w+_state|\/logs|\/proc\/self\/fd|\/sys\/fs\/cgroup)\//,
];

/** Whether the step changes something of a pod. Reads, and changes that concern only the node, do not count. */
export function isStep(name: string): boolean {
  return STEPS.some((step) => step.test(name));
}
