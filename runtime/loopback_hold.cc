#include "runtime/loopback_hold.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "runtime/netlink.h"

namespace holdfast::runtime {
namespace {

constexpr std::string_view kTable = "holdfast", kChain = "hold";
constexpr uint32_t kLoopback = 1;      // lo's index in every network namespace
constexpr uint32_t kFlagsOffset = 13;  // of a TCP header
constexpr uint8_t kReset = 0x04, kNone = 0;

std::string Request(int message, int flags) {
  nfgenmsg body{NFPROTO_INET, NFNETLINK_V0, 0};
  return NetlinkRequest(static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | message), static_cast<uint16_t>(flags), body);
}

std::string Batch(int type) {
  nfgenmsg body{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
  return NetlinkRequest(static_cast<uint16_t>(type), 0, body);
}

void Text(std::string* out, uint16_t type, std::string_view text) {
  AppendAttribute(out, type, std::string(text).c_str(), text.size() + 1);
}

void Number(std::string* out, uint16_t type, uint32_t value) {
  value = htonl(value);
  AppendAttribute(out, type, &value, sizeof value);
}

void Nested(std::string* out, uint16_t type, const std::string& inner) {
  AppendAttribute(out, type | NLA_F_NESTED, inner.data(), inner.size());
}

template <class T>
void Value(std::string* out, uint16_t type, const T& value) {
  std::string data;
  AppendAttribute(&data, NFTA_DATA_VALUE, &value, sizeof value);
  Nested(out, type, data);
}

void Expression(std::string* rule, std::string_view name, const std::string& data) {
  std::string element;
  Text(&element, NFTA_EXPR_NAME, name);
  Nested(&element, NFTA_EXPR_DATA, data);
  Nested(rule, NFTA_LIST_ELEM, element);
}

void Meta(std::string* rule, uint32_t key) {
  std::string data;
  Number(&data, NFTA_META_KEY, key);
  Number(&data, NFTA_META_DREG, NFT_REG_1);
  Expression(rule, "meta", data);
}

template <class T>
void Compare(std::string* rule, uint32_t how, const T& with) {
  std::string data;
  Number(&data, NFTA_CMP_SREG, NFT_REG_1);
  Number(&data, NFTA_CMP_OP, how);
  Value(&data, NFTA_CMP_DATA, with);
  Expression(rule, "cmp", data);
}

// iif lo, TCP, flags & RST: drop.
std::string DropResets() {
  std::string rule, data;
  Meta(&rule, NFT_META_IIF);
  Compare(&rule, NFT_CMP_EQ, kLoopback);
  Meta(&rule, NFT_META_L4PROTO);
  Compare(&rule, NFT_CMP_EQ, static_cast<uint8_t>(IPPROTO_TCP));
  Number(&data, NFTA_PAYLOAD_DREG, NFT_REG_1);
  Number(&data, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER);
  Number(&data, NFTA_PAYLOAD_OFFSET, kFlagsOffset);
  Number(&data, NFTA_PAYLOAD_LEN, 1);
  Expression(&rule, "payload", data);
  data.clear();
  Number(&data, NFTA_BITWISE_SREG, NFT_REG_1);
  Number(&data, NFTA_BITWISE_DREG, NFT_REG_1);
  Number(&data, NFTA_BITWISE_LEN, 1);
  Value(&data, NFTA_BITWISE_MASK, kReset);
  Value(&data, NFTA_BITWISE_XOR, kNone);
  Expression(&rule, "bitwise", data);
  Compare(&rule, NFT_CMP_NEQ, kNone);
  std::string verdict, value;
  Number(&verdict, NFTA_VERDICT_CODE, NF_DROP);
  Nested(&value, NFTA_DATA_VERDICT, verdict);
  data.clear();
  Number(&data, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
  Nested(&data, NFTA_IMMEDIATE_DATA, value);
  Expression(&rule, "immediate", data);
  return rule;
}

}  // namespace

Result<bool> HoldLoopback(const std::string& netns_path) {
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_NETFILTER));
  std::string table = Request(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL), chain = Request(NFT_MSG_NEWCHAIN, NLM_F_CREATE);
  Text(&table, NFTA_TABLE_NAME, kTable);
  Text(&chain, NFTA_CHAIN_TABLE, kTable);
  Text(&chain, NFTA_CHAIN_NAME, kChain);
  std::string hook;
  Number(&hook, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_IN);
  Number(&hook, NFTA_HOOK_PRIORITY, 0);
  Nested(&chain, NFTA_CHAIN_HOOK, hook);
  Text(&chain, NFTA_CHAIN_TYPE, "filter");
  std::string rule = Request(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK);
  Text(&rule, NFTA_RULE_TABLE, kTable);
  Text(&rule, NFTA_RULE_CHAIN, kChain);
  Nested(&rule, NFTA_RULE_EXPRESSIONS, DropResets());
  const int error = netlink.TalkBatch({Batch(NFNL_MSG_BATCH_BEGIN), table, chain, rule, Batch(NFNL_MSG_BATCH_END)});
  if (error == 0 || error == EEXIST) return true;  // EEXIST: it is held already, without a gap
  if (error == EPROTONOSUPPORT || error == EOPNOTSUPP) return false;
  return NetlinkFailed("hold resets on lo", error);
}

Status ReleaseLoopback(const std::string& netns_path) {
  HF_ASSIGN_OR_RETURN(Netlink netlink, Netlink::Open(netns_path, NETLINK_NETFILTER));
  std::string request = Request(NFT_MSG_DELTABLE, NLM_F_ACK);
  Text(&request, NFTA_TABLE_NAME, kTable);
  const int error = netlink.TalkBatch({Batch(NFNL_MSG_BATCH_BEGIN), request, Batch(NFNL_MSG_BATCH_END)});
  if (error == 0 || error == ENOENT || error == EPROTONOSUPPORT || error == EOPNOTSUPP || error == EINVAL) return Status::Ok();
  return NetlinkFailed("release lo", error);
}

}  // namespace holdfast::runtime
