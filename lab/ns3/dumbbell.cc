// A dumbbell of bulk transfers in ns-3, one cell of the table that `run.sh` makes.
//
// The command line says what is simulated, and one line of CSV goes to standard output: what each receiver was
// handed in order from `--from` to `--until`, in bit/s. What is set and why, README.md in this folder says.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

struct Cell
{
    std::string control = "new-reno";
    std::string recovery = "classic";
    std::string rate = "10Mbps";
    uint32_t flows = 1;
    uint32_t queue = 33;
    uint32_t rttMs = 40;
    uint32_t ackEvery = 2;
    bool limitedTransmit = true;
    // Between the first packets of two transfers, so that they do not all begin in step.
    uint32_t staggerMs = 137;
    double from = 10;
    double until = 110;
};

const uint32_t SEGMENT = 1448;
const uint32_t MEMORY = 6 << 20;
const uint16_t PORT = 5001;

void SetUp(const Cell& cell)
{
    const bool isCubic = cell.control == "cubic";
    NS_ABORT_MSG_UNLESS(isCubic || cell.control == "new-reno", "a control that there is not: " << cell.control);
    const bool isPrr = cell.recovery == "prr";
    NS_ABORT_MSG_UNLESS(isPrr || cell.recovery == "classic", "a recovery that there is not: " << cell.recovery);
    const auto type = [](const char* name) { return TypeIdValue(TypeId::LookupByName(name)); };
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", type(isCubic ? "ns3::TcpCubic" : "ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       type(isPrr ? "ns3::TcpPrrRecovery" : "ns3::TcpClassicRecovery"));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(isCubic));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(cell.limitedTransmit));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue("Off"));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpSocketState::EnablePacing", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(cell.ackEvery));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(MEMORY));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(MEMORY));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));
    Config::SetDefault("ns3::TcpCubic::FastConvergence", BooleanValue(true));
    Config::SetDefault("ns3::TcpCubic::Beta", DoubleValue(0.7));
    Config::SetDefault("ns3::TcpCubic::C", DoubleValue(0.4));
}

// A link whose both ends hold so many packets, beside the one that is on its way out.
NetDeviceContainer Link(Ptr<Node> from, Ptr<Node> to, const std::string& rate, Time delay, uint32_t queue)
{
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", TimeValue(delay));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, queue)));
    return link.Install(from, to);
}

// The sinks of the transfers, of a network in which all is set up.
std::vector<Ptr<PacketSink>> Build(const Cell& cell)
{
    NodeContainer routers(2);
    NodeContainer senders(cell.flows);
    NodeContainer receivers(cell.flows);
    InternetStackHelper().Install(NodeContainer(routers, senders, receivers));
    Ipv4AddressHelper addresses("10.1.0.0", "255.255.255.0");
    const auto connect = [&](const NetDeviceContainer& ends) {
        const auto interfaces = addresses.Assign(ends);
        // Else packets would wait in a queue of FQ-CoDel in front of the device's.
        TrafficControlHelper().Uninstall(ends);
        addresses.NewNetwork();
        return interfaces;
    };
    // Half of the delay is the middle's, a quarter each side's access.
    const Time rtt = MilliSeconds(cell.rttMs);
    connect(Link(routers.Get(0), routers.Get(1), cell.rate, rtt / 4, cell.queue));
    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t flow = 0; flow < cell.flows; flow++)
    {
        connect(Link(senders.Get(flow), routers.Get(0), "1Gbps", rtt / 8, 100000));
        const auto far = connect(Link(routers.Get(1), receivers.Get(flow), "1Gbps", rtt / 8, 100000));
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
        sinks.push_back(DynamicCast<PacketSink>(sink.Install(receivers.Get(flow)).Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(far.GetAddress(1), PORT));
        bulk.SetAttribute("MaxBytes", UintegerValue(0));
        bulk.SetAttribute("SendSize", UintegerValue(SEGMENT));
        bulk.Install(senders.Get(flow)).Start(MilliSeconds(cell.staggerMs * flow));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    return sinks;
}

std::vector<uint64_t> Received(const std::vector<Ptr<PacketSink>>& sinks)
{
    std::vector<uint64_t> bytes;
    for (const auto& sink : sinks)
    {
        bytes.push_back(sink->GetTotalRx());
    }
    return bytes;
}

} // namespace

int main(int argc, char* argv[])
{
    Cell cell;
    CommandLine line;
    line.AddValue("control", "new-reno or cubic", cell.control);
    line.AddValue("recovery", "classic or prr", cell.recovery);
    line.AddValue("rate", "of the middle link", cell.rate);
    line.AddValue("flows", "transfers", cell.flows);
    line.AddValue("queue", "packets that wait in front of the middle link", cell.queue);
    line.AddValue("rtt", "of an empty network, in ms", cell.rttMs);
    line.AddValue("ack-every", "segments to an acknowledgement", cell.ackEvery);
    line.AddValue("limited-transmit", "send something new for the first two duplicates", cell.limitedTransmit);
    line.AddValue("stagger", "from the start of a transfer to the next one's, in ms", cell.staggerMs);
    line.AddValue("from", "when counting begins, in s", cell.from);
    line.AddValue("until", "when counting ends, in s", cell.until);
    line.Parse(argc, argv);

    SetUp(cell);
    const auto sinks = Build(cell);
    Simulator::Stop(Seconds(cell.from));
    Simulator::Run();
    const auto before = Received(sinks);
    Simulator::Stop(Seconds(cell.until - cell.from));
    Simulator::Run();
    const auto after = Received(sinks);

    uint64_t total = 0;
    std::string each;
    for (uint32_t flow = 0; flow < cell.flows; flow++)
    {
        const auto rate = static_cast<uint64_t>((after[flow] - before[flow]) * 8 / (cell.until - cell.from));
        total += rate;
        each += (flow > 0 ? " " : "") + std::to_string(rate);
    }
    std::cout << cell.control << ',' << cell.flows << ',' << cell.queue << ',' << cell.rttMs << ',' << cell.from
              << ',' << cell.until << ',' << total << ',' << each << '\n';
    Simulator::Destroy();
    return 0;
}
