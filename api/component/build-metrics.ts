/** Registers the metric that identifies the release of a component. */
import type { MetricsRegistry } from './metrics.ts';

/** The release. Absent parts are empty labels. */
export interface BuildInfo {
  readonly gitVersion: string;
  readonly gitCommit?: string;
  readonly gitTreeState?: string;
  readonly buildDate?: string;
  readonly goVersion?: string;
  readonly compiler?: string;
  readonly platform: string;
}

/** Registers `kubernetes_build_info`. Major and minor are taken from `gitVersion`. */
export function registerBuildInfo(metrics: MetricsRegistry, info: BuildInfo): void {
  const { gitVersion, gitCommit = '', gitTreeState = '', buildDate = '', goVersion = '', compiler = '' } = info;
  const [, major = '', minor = ''] = /^v(\d+)\.(\d+)/.exec(gitVersion) ?? [];
  metrics
    .gauge({
      name: 'kubernetes_build_info',
      help: "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
      labels: [
        'build_date',
        'compiler',
        'git_commit',
        'git_tree_state',
        'git_version',
        'go_version',
        'major',
        'minor',
        'platform',
      ],
    })
    .with(buildDate, compiler, gitCommit, gitTreeState, gitVersion, goVersion, major, minor, info.platform)
    .set(1);
}
