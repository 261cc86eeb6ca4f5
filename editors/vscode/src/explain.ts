/** Shows the server's explanation of the last suggestion, or the reason why there was none. */
import { OutputChannel, window } from "vscode";
import { explanationText } from "./explanationText";
import type { Explanation } from "./protocol";
import { Server } from "./server";

let channel: OutputChannel | undefined;

export async function explain(server: Server): Promise<void> {
  const explanation = await server.request<Explanation>("speclsp/explain", {});
  if (!explanation) {
    void window.showInformationMessage("speclsp: the server does not run, or is too old to explain what it did.");
    return;
  }
  channel ??= window.createOutputChannel("speclsp: the last suggestion");
  channel.replace(`${explanationText(explanation)}\n`);
  channel.show(true);
}

export const disposeChannel = (): void => {
  channel?.dispose();
  channel = undefined;
};
